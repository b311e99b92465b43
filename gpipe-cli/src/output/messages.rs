//! Messages on stderr, which no work depends on.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anstream::{ColorChoice, adapter::strip_str};
use gpipe_train::printable;

use super::style;
use crate::signals;

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

/// Waits until stderr has room for a line; `false` if a stop is requested first.
pub fn has_room() -> bool {
    gpipe_train::has_room(io::stderr(), signals::stop())
}

/// Prints a message of one or more lines to stderr. Where nobody can read it, work goes on.
pub fn tell(text: &str) {
    if is_silent() || !has_room() {
        return;
    }
    // One write, since ranks of a launcher share stderr: where colours are taken away, each piece between them is one.
    let mut line = format!("{}\n", harmless(text.trim_end()));
    let mut stderr = anstream::stderr().lock();
    if stderr.current_choice() == ColorChoice::Never {
        line = strip_str(&line).to_string();
    }
    let _ = stderr.write_all(line.as_bytes());
}

/// Does some work, and prints this message if it takes more than two seconds.
pub fn tell_if_slow<T>(text: &str, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let wait = move || {
            if is_done.recv_timeout(Duration::from_secs(2)) == Err(RecvTimeoutError::Timeout) {
                tell(text);
            }
        };
        // Where no thread can be started, nothing is said.
        let _ = thread::Builder::new().spawn_scoped(scope, wait);
        let result = work();
        drop(done);
        result
    })
}

/// Prints a warning of one line to stderr.
pub fn warn(text: &str) {
    tell(&format!(
        "{}warning:{} {}",
        style::WARNING,
        style::RESET,
        printable(text)
    ));
}

/// Lines without characters that control a terminal, but for the program's own styles.
pub fn harmless(text: &str) -> String {
    let own = [style::ERROR, style::WARNING, style::HEADING].map(|style| style.to_string());
    gpipe_train::harmless(text, &[&own[..], &[style::RESET.to_string()]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_styles_reach_the_terminal() {
        let (heading, reset) = (style::HEADING, style::RESET);
        let title = format!("{heading}gpt{reset}\n\u{1b}]0;x\u{7}\u{9b}31m\u{2028}é");
        let written = format!("{heading}gpt{reset}\n\\u001b]0;x\\u0007\\u009b31m\u{2028}é");
        assert_eq!(harmless(&title), written);
        let json = serde_json::json!({"text": "\u{9b}\u{7f}\n\u{1b}"});
        let read: serde_json::Value = serde_json::from_str(&harmless(&json.to_string())).unwrap();
        assert_eq!(read, json);
    }
}
