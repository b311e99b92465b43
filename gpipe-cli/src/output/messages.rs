//! Messages on stderr, which no work depends on.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::style;

/// Whether another rank of the run speaks for this one.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Sets whether nothing is printed from now on.
pub fn silence(is_silent: bool) {
    SILENT.store(is_silent, Ordering::Relaxed);
}

/// Whether nothing is printed.
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Prints a message of one or more lines to stderr. Where nobody can read it, work goes on.
pub fn tell(text: &str) {
    if is_silent() {
        return;
    }
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
