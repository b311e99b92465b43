//! What is said, where and how: results on stdout, talk on stderr, everything in the run's folder.

mod console;
mod event;
pub mod numbers;
mod pace;
mod run_folder;
mod scalars;
pub mod style;
mod table;
mod tensorboard;

pub use console::{Console, print, terminal_width, warn};
pub use event::{Event, FoundDevice};
pub use pace::{Pace, median};
pub use run_folder::{NewRun, RUNS, RunFolder};
pub use table::{table, table_within};
