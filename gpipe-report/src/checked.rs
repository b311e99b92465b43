//! The object of a checkpoint that was checked.

use serde::Serialize;

/// A checkpoint, every byte of which was read.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// Its folder.
    pub path: String,
    /// Steps before it; `null` where neither manifest nor name tells.
    pub step: Option<u64>,
    /// Its files.
    pub files: usize,
    /// Bytes of all its files but the manifest.
    pub bytes: u64,
    /// Whether nothing is wrong with it.
    pub whole: bool,
    /// What is wrong, in words.
    pub faults: Vec<String>,
    /// Whether the run goes on from it.
    pub resumes: bool,
}
