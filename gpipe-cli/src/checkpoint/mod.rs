//! Checkpoints: what a run leaves so that it can go on, whatever happens to it.
//!
//! ```text
//! RUN/checkpoints/step-00000120/  model/…  optimizer.safetensors  state.json  config.toml  manifest.json
//!                 latest          "step-00000120": written last
//! ```
//!
//! A checkpoint is a folder that is never changed once it has its name. [`write`] says in which order
//! it comes to stand; [`read`] finds the newest one that is whole and trusts nothing that it finds.

mod changes;
mod fs;
mod lock;
mod manifest;
mod names;
mod read;
mod resume;
mod saver;
mod snapshot;
mod state;
mod write;

pub use changes::changes;
pub use fs::Disk;
pub use lock::Lock;
pub use manifest::{Manifest, hexadecimal};
pub use names::{CONFIG, MODEL};
pub use resume::{Resumed, find, whole_in};
pub use saver::{Saved, Saver};
pub use snapshot::{Snapshot, restore};
pub use state::{Best, State, VERSION};

use write::set_aside;

/// The folder in a run's folder that holds its checkpoints.
pub const FOLDER: &str = "checkpoints";

/// Removes the checkpoints of an earlier run, and nothing else that lies beside them.
pub fn remove(run: &std::path::Path) -> std::io::Result<()> {
    write::remove_checkpoints(&mut Disk, &run.join(FOLDER))
}

#[cfg(test)]
mod tests;
