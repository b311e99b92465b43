//! What is asked of the measurement.

use std::path::PathBuf;

/// What is to be measured, and how it is shown.
#[derive(Clone, Default)]
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
    /// What is multiplied in; everything if none is named.
    pub precision: Option<&'static str>,
    /// How often everything runs, in turns.
    pub rounds: Option<usize>,
    /// Measured steps of a run.
    pub steps: Option<usize>,
    /// Samples of a step.
    pub batch: Option<usize>,
}

impl Wanted {
    /// The same in one precision, with or without the peer.
    pub fn of(&self, precision: &'static str, with_peer: bool) -> Self {
        Self {
            precision: Some(precision),
            peers: self.peers.clone().filter(|_| with_peer),
            ..self.clone()
        }
    }
}
