#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod checkpoint;
mod error;
mod failure;
mod fault;
mod files;
mod fs;
mod identity;
mod lock;
mod manifest;
mod names;
mod ranks;
mod read;
mod restore;
mod resume;
mod run_state;
mod saver;
mod search;
mod shards;
mod snapshot;
mod write;

pub use check::{Check, Checked, check};
pub use checkpoint::Checkpoint;
pub use error::{Error, Result};
pub use failure::Failure;
pub use fault::{Fault, Skipped};
pub use identity::{Identity, Origin};
pub use lock::Lock;
pub use manifest::{Listed, Manifest};
pub use names::{CONFIG, FOLDER, MODEL, OPTIMIZER, RUN, STATE};
pub use ranks::Part;
pub use resume::{HeldRun, Location, Resumed, find, locate, resume};
pub use run_state::{Best, RunState};
pub use saver::{Clock, Saved, Saver, SaverOptions};
pub use search::{Search, last_run, newest, unsaved_since};
pub use snapshot::{ModelFiles, ModelWeights, Snapshot};
pub use write::remove_all;

#[cfg(test)]
mod tests;
