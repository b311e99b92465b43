//! What is asked of the measurement.

use std::path::PathBuf;

/// What is to be measured, and how it is shown.
#[derive(Default)]
pub struct Wanted {
    /// A model of no use, to try the measurement itself.
    pub small: bool,
    /// One object a line instead of tables.
    pub json: bool,
    /// Tables in Markdown.
    pub markdown: bool,
    /// A folder with gpt2_cuda.py.
    pub peers: Option<PathBuf>,
    /// The Python that runs it.
    pub python: Option<PathBuf>,
    /// How often everything runs, in turns.
    pub rounds: Option<usize>,
    /// Measured steps of a run.
    pub steps: Option<usize>,
    /// Samples of a step.
    pub batch: Option<usize>,
}
