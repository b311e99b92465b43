//! Colours, which the streams of anstream remove where they are disabled.

use anstyle::{AnsiColor, Reset, Style};

/// The word "error:".
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// The word "warning:".
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Headings.
pub const HEADING: Style = Style::new().bold();
/// Back to normal.
pub const RESET: Reset = Reset;
