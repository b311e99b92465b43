//! The commands, one file each.

pub mod auto;
pub mod check;
mod compare;
pub mod devices;
pub mod eval;
pub mod generate;
pub mod help;
pub mod plan;
pub mod predict;
mod profile;
mod refusals;
pub mod report;
pub mod sample;
mod schedules;
pub mod train;
mod trained;
pub mod verify;

/// The default folder of runs and of `profile.json`.
pub const RUNS: &str = "runs";
