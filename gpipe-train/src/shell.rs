//! Commands that are shown, for a POSIX shell.

/// A word of a command: as it is, or in quotes.
///
/// ```
/// assert_eq!(gpipe_train::quoted("runs/a"), "runs/a");
/// assert_eq!(gpipe_train::quoted("it's here"), r"'it'\''s here'");
/// ```
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
