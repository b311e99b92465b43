//! Calls into a library that may panic on what a stranger's file says.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught and told as an error.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call whose panics become errors, and are not printed.
///
/// Panics are caught here and nowhere else in the program's own code, because `tokenizers` takes
/// for granted what a file says of itself (slices by lengths that it names, unwraps tables that it
/// lists), and its faults must be the user's one line. What a panic left behind is not used again by a
/// parser that failed; a tokenizer that panics on a text ends the command.
pub fn quietly<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                others(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    QUIET.set(before);
    outcome.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words: String = words.unwrap_or_default().chars().take(200).collect();
        Err(format!("the library tokenizers panicked: {words}"))
    })
}

/// A fault of a part that the library, or the check before it, does not understand.
pub fn unreadable(error: impl Display) -> String {
    format!("cannot be read: {}", short(error))
}

/// The beginning of what the library says: it quotes the file.
pub fn short(error: impl Display) -> String {
    error.to_string().chars().take(200).collect()
}
