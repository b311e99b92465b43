//! Stash of a stage: what it holds of each micro-batch between forward and backward pass.

use std::ops::Range;

use gpipe_layers::Pending;
use gpipe_tensor::Tensors;

use crate::run::Step;

/// What a stage holds of every micro-batch.
#[derive(Default)]
pub(crate) struct Stash(Vec<State>);

impl Stash {
    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Puts what is left of a micro-batch in its place.
    pub(crate) fn put(&mut self, m: usize, state: State) {
        if self.0.len() <= m {
            self.0.resize_with(m + 1, || State::Nothing);
        }
        self.0[m] = state;
    }

    /// Takes what is left of a micro-batch out of its place.
    pub(crate) fn take(&mut self, m: usize) -> State {
        self.0
            .get_mut(m)
            .map_or(State::Nothing, |s| std::mem::replace(s, State::Nothing))
    }
}

/// What a stage holds of one micro-batch.
pub(crate) enum State {
    Nothing,
    Remembered(Vec<Run>),
    Pending(Vec<Pending>),
}

impl State {
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
pub(crate) struct Run {
    pub(crate) layers: Range<usize>,
    /// Whether it was kept, rather than computed again since.
    pub(crate) kept: bool,
    pub(crate) left: Left,
}

/// What is left of a forward pass: all that the backward pass needs, or what it is computed from.
pub(crate) enum Left {
    /// The first tensors of the input: those that some layer of the run takes.
    Inputs(Tensors),
    Saved(Vec<Step>),
}
