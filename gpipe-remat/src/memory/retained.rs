//! The tensors that one stage keeps of one micro-batch.

use std::ops::Range;
use std::sync::Arc;

use crate::cut::is_cut;

/// The tensors that one stage keeps of one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retained {
    /// The saved tensors of every layer.
    Everything,
    /// The input of every run of this many layers, as far as the run takes it; the rest is recomputed.
    Inputs {
        /// Layers per run; a stage of fewer is one run, and 0 counts as 1.
        run: usize,
    },
    /// A mixture of both: runs that cover the stage's layers in order, which an assembly checks.
    Runs(Arc<[RetainedRun]>),
}

/// A run of layers with the same choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRun {
    /// The layers, counted from the stage's first.
    pub layers: Range<usize>,
    /// Whether the saved tensors of every layer are kept; otherwise only the input of the first, from
    /// which the whole run is recomputed. Of a flow of several tensors, those that no layer of the
    /// run takes are handed on and not kept.
    pub kept: bool,
}

impl Retained {
    /// The runs of a stage of this many layers, first to last.
    pub fn runs(&self, layers: usize) -> Vec<RetainedRun> {
        let (run, kept) = match self {
            Self::Runs(runs) => return runs.to_vec(),
            Self::Everything => (layers.max(1), true),
            Self::Inputs { run } => ((*run).max(1), false),
        };
        let starts = (0..layers).step_by(run);
        let run = |start: usize| RetainedRun {
            layers: start..layers.min(start.saturating_add(run)),
            kept,
        };
        starts.map(run).collect()
    }

    /// Whether the runs cover a stage of this many layers in order.
    pub(crate) fn covers(&self, layers: usize) -> bool {
        is_cut(self.runs(layers).iter().map(|run| &run.layers), layers)
    }

    /// The runs of a stage of this many layers without the first `frozen` of them, which have no backward pass.
    pub(crate) fn runs_behind(&self, frozen: usize, layers: usize) -> Vec<RetainedRun> {
        let mut runs = self.runs(layers);
        for run in &mut runs {
            run.layers.start = run.layers.start.max(frozen);
        }
        runs.retain(|run| !run.layers.is_empty());
        runs
    }
}
