//! Where the times of layers come from, and what is said while they are measured.

use std::path::{Path, PathBuf};

/// The source of a [`Speed`](super::Speed).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProfileOptions<'a> {
    /// The profile file, which may not exist yet.
    pub path: &'a Path,
    /// Whether to measure now and write the file.
    pub measure: bool,
    /// Whether another rank measures at the same time, and writes the file.
    pub is_beside: bool,
}

impl<'a> ProfileOptions<'a> {
    /// Uses the profile in this file, if it exists.
    pub fn new(path: &'a Path) -> Self {
        Self {
            path,
            measure: false,
            is_beside: false,
        }
    }

    /// Whether to measure now and write the file.
    #[must_use]
    pub fn measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }

    /// Whether another rank measures at the same time, and writes the file.
    #[must_use]
    pub fn beside(mut self, is_beside: bool) -> Self {
        self.is_beside = is_beside;
        self
    }
}

/// Progress of [`Speed::of`](super::Speed::of).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProfileProgress {
    /// A measurement begins.
    Measuring {
        /// The number of kinds of layers.
        kinds: usize,
        /// The measured micro-batch sizes in samples.
        sizes: Vec<usize>,
    },
    /// A profile exists but cannot be used.
    Unused {
        /// Its file.
        path: PathBuf,
        /// The reason.
        fault: String,
    },
}
