//! What is built and run, one file a command.

pub mod plan;
mod story;
pub mod train;
pub mod verify;
