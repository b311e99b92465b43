//! The commands, one file each.

pub mod auto;
mod compare;
pub mod devices;
pub mod eval;
pub mod generate;
pub mod help;
pub mod plan;
mod profile;
pub mod report;
pub mod sample;
mod schedules;
mod stages;
pub mod train;
pub mod verify;
mod workers;

/// The folder of runs that were given no folder of their own, and of `profile.json`.
pub const RUNS: &str = "runs";
