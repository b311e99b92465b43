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
    plain(&error.to_string()).chars().take(200).collect()
}

/// What the library says of a part of no known form, in words: it names types of its own.
fn plain(fault: &str) -> String {
    let Some((_, rest)) = fault.split_once("did not match any variant of untagged enum ") else {
        return fault.to_owned();
    };
    let (name, place) = rest.split_once(' ').unwrap_or((rest, ""));
    let part = match name {
        "MergeType" => "`merges` of another form: pairs of pieces are needed",
        _ if name.starts_with("Model") => {
            "`model` is of no known form: types are BPE, WordPiece, WordLevel and Unigram"
        }
        _ if name.starts_with("Normalizer") => "`normalizer` is of no known type or form",
        _ if name.starts_with("PreTokenizer") => "`pre_tokenizer` is of no known type or form",
        _ if name.starts_with("Decoder") => "`decoder` is of no known type or form",
        _ if name.starts_with("PostProcessor") => "`post_processor` is of no known type or form",
        _ => "a part is of no known type or form",
    };
    format!("{part} {place}").trim_end().to_owned()
}
