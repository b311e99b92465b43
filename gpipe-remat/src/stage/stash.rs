//! Stash of a stage: the tensors of each micro-batch between forward and backward pass.

use std::ops::Range;

use gpipe_layers::Pending;
use gpipe_tensor::{Device, Tensors};

use super::exchange::stand_in;
use super::run::{Passed, Step};
use crate::Result;

/// The tensors that a stage holds for all micro-batches.
#[derive(Default)]
pub(crate) struct Stash(Vec<StashedState>);

impl Stash {
    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Stores the entry of a micro-batch.
    pub(crate) fn put(&mut self, m: usize, state: StashedState) {
        if self.0.len() <= m {
            self.0.resize_with(m + 1, || StashedState::Nothing);
        }
        self.0[m] = state;
    }

    /// The entry of a micro-batch, if it holds something.
    pub(crate) fn held(&self, m: usize) -> Option<&StashedState> {
        let state = self.0.get(m);
        state.filter(|state| !matches!(state, StashedState::Nothing))
    }

    /// Removes and returns the entry of a micro-batch.
    pub(crate) fn take(&mut self, m: usize) -> StashedState {
        self.0.get_mut(m).map_or(StashedState::Nothing, |s| {
            std::mem::replace(s, StashedState::Nothing)
        })
    }
}

/// The tensors that a stage holds for one micro-batch.
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

/// A run of layers and its stashed tensors of one micro-batch.
pub(crate) struct StashedRun {
    pub(crate) layers: Range<usize>,
    /// Whether it was kept since the forward pass, rather than recomputed.
    pub(crate) kept: bool,
    pub(crate) left: Stashed,
}

/// The stashed tensors of a forward pass: all that the backward pass needs, or the inputs for
/// recomputing them.
pub(crate) enum Stashed {
    /// The input, whose tensors that no layer of the run touches have no elements, and [`Passed::gradients`].
    Inputs(Tensors, usize),
    Saved(Vec<Step>),
}

impl Stashed {
    /// Keeps the tensors of a run's input that its layers touched as they `passed`: the next stage or run keeps the
    /// others. `transit` is a handle of the processor.
    pub(crate) fn inputs(inputs: Tensors, passed: &Passed, transit: &Device) -> Result<Self> {
        let kept = inputs.into_iter().zip(passed.reach.touched());
        let kept = kept.map(|(input, &touched)| match touched {
            true => Ok(input),
            false => stand_in(transit, input.dtype().is_float()),
        });
        Ok(Self::Inputs(kept.collect::<Result<_>>()?, passed.gradients))
    }
}
