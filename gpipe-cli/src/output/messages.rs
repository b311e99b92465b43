//! Messages on stderr, which no work depends on.

use std::io::Write;

use super::style;

/// Prints a message of one or more lines to stderr. Where nobody can read it, work goes on.
pub fn tell(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.trim_end());
}

/// Prints a warning to stderr.
pub fn warn(text: &str) {
    tell(&format!(
        "{}warning:{} {text}",
        style::WARNING,
        style::RESET
    ));
}
