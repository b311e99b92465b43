//! Times of layers on this machine: measured once, stored in a file next to the configuration, and used
//! to predict step times.

mod bench;
mod clock;
mod empty;
mod file;
mod given;
mod kinds;
mod measure;
mod measurements;
#[cfg(feature = "cuda")]
mod on_paper;
mod operations;
mod options;
mod sizes;
mod speed;
mod table;

pub use options::{ProfileOptions, ProfileProgress};
pub(crate) use sizes::sizes;
pub use speed::{KindTimes, Measured, Modelled, Peaks, Speed};
pub use table::table_of;
