//! What is built and run, one file a command.

pub mod devices;
pub mod generate;
pub mod plan;
pub mod report;
mod story;
pub mod train;
pub mod verify;
