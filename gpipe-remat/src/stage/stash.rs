//! Stash of a stage: what it holds of each micro-batch between forward and backward pass.

use std::ops::Range;

use gpipe_layers::Pending;
use gpipe_tensor::Tensors;

use super::run::Step;

/// What a stage holds of every micro-batch.
#[derive(Default)]
pub(crate) struct Stash(Vec<StashedState>);

impl Stash {
    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Puts what is left of a micro-batch in its place.
    pub(crate) fn put(&mut self, m: usize, state: StashedState) {
        if self.0.len() <= m {
            self.0.resize_with(m + 1, || StashedState::Nothing);
        }
        self.0[m] = state;
    }

    /// Takes what is left of a micro-batch out of its place.
    pub(crate) fn take(&mut self, m: usize) -> StashedState {
        self.0.get_mut(m).map_or(StashedState::Nothing, |s| {
            std::mem::replace(s, StashedState::Nothing)
        })
    }
}

/// What a stage holds of one micro-batch.
pub(crate) enum StashedState {
    Nothing,
    Remembered(Vec<StashedRun>),
    Pending(Vec<Pending>),
}

impl StashedState {
    /// The state in words.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Nothing => "it holds nothing of this micro-batch",
            Self::Remembered(_) => "it still holds what the forward pass left",
            Self::Pending(_) => "its input gradient was already taken",
        }
    }
}

/// A run of layers and what is left of one micro-batch's forward pass through it.
pub(crate) struct StashedRun {
    pub(crate) layers: Range<usize>,
    /// Whether it was kept, rather than computed again since.
    pub(crate) kept: bool,
    pub(crate) left: Stashed,
}

/// What is left of a forward pass: all that the backward pass needs, or what it is computed from.
pub(crate) enum Stashed {
    /// The first tensors of the input: those that some layer of the run takes.
    Inputs(Tensors),
    Saved(Vec<Step>),
}
