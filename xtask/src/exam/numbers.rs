//! How much of a row is tried.

/// At which numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Those of `cargo test`.
    Small,
    /// Those of the row.
    Full,
}
