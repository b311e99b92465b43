//! The terminal: results on stdout, messages on stderr.

mod console;
pub mod style;

pub use console::{Console, print, tell, terminal_width, warn};
pub use gpipe_train::text_table::{table, table_within};
