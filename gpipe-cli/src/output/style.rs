//! Colours; the streams of anstream leave them out where they are not wanted.

use anstyle::{AnsiColor, Reset, Style};

/// The word "error:".
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// The word "warning:".
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Headings.
pub const HEADING: Style = Style::new().bold();
/// Back to normal.
pub const RESET: Reset = Reset;
