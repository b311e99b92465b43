//! When everything happens: schedules run on paper under given costs, and what timelines tell.

pub(crate) mod bubble_breakdown;
pub(crate) mod costs;
pub(crate) mod costs_error;
pub(crate) mod early_recompute;
pub(crate) mod grid;
pub(crate) mod level;
pub(crate) mod memory;
pub(crate) mod shared;
pub(crate) mod simulator;
pub(crate) mod timeline;
pub(crate) mod trace;
pub(crate) mod zero_bubble;
