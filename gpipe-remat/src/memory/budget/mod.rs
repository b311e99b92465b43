//! The least recomputation within a budget of bytes.

mod chain;
mod in_flight;
mod search;
mod stage_choice;

pub(crate) use stage_choice::{EXACT, QUICK, StageContext, check_parts, stages};
