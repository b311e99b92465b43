//! The folder of a run: configuration, log, events, curves and timelines.
//!
//! ```text
//! NewRun ── make ──► MadeRun ── begin(lock) ──► RunFolder ── take_place ──► RunFolder ◄── reopen(lock)
//! chosen             the folder exists          its files grow,             the earlier run
//!                                               perhaps aside               is gone
//! ```

mod earlier;
pub(crate) mod lines;
pub(crate) mod names;
mod new_run;
pub(crate) mod run_folder;

pub use names::PAGE;
pub use new_run::{MadeRun, NewRun};
pub use run_folder::RunFolder;
