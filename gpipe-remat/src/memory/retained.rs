//! What one stage keeps of one micro-batch.

use std::ops::Range;
use std::sync::Arc;

/// What one stage keeps of one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retained {
    /// What every layer saved.
    Everything,
    /// The input of the first of every run of this many layers, as far as the run takes it; the
    /// rest is computed again.
    Inputs {
        /// Layers a run; a stage of fewer is one run.
        run: usize,
    },
    /// Some of one and some of the other: runs that cover the stage's layers in order.
    Runs(Arc<[RetainedRun]>),
}

/// A run of layers that are treated alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRun {
    /// The layers, counted from the stage's first.
    pub layers: Range<usize>,
    /// Whether what every layer saved is kept; otherwise the input of the first, from which the
    /// run is computed again as a whole. Of a flow of several tensors, those that no layer of the
    /// run takes are handed on and not kept.
    pub kept: bool,
}

impl Retained {
    /// The runs of a stage of this many layers, first to last.
    pub fn runs(&self, layers: usize) -> Vec<RetainedRun> {
        let (run, kept) = match self {
            Self::Runs(runs) => return runs.to_vec(),
            Self::Everything => (layers.max(1), true),
            Self::Inputs { run } => (*run, false),
        };
        let starts = (0..layers).step_by(run.max(1));
        let run = |start: usize| RetainedRun {
            layers: start..layers.min(start.saturating_add(run)),
            kept,
        };
        starts.map(run).collect()
    }
}
