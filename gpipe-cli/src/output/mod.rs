//! The terminal: results on stdout, messages on stderr.

mod console;
mod messages;
pub mod style;

pub use console::{Console, print, terminal_width};
pub use gpipe_train::text_table::{table, table_within, wrapped};
pub use messages::{is_silent, silence, tell, tell_if_slow, warn};
