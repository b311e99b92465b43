//! What is built and run, one file a command.

pub mod auto;
mod begin;
mod choices;
mod compare;
pub mod devices;
pub mod eval;
pub mod generate;
pub mod help;
pub mod plan;
pub mod report;
pub mod sample;
mod saving;
mod schedules;
mod stages;
mod story;
pub mod train;
pub mod verify;
mod workers;
