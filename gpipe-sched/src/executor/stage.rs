//! The executor's whole knowledge of a model: a stage, and the turn at the end.

use std::ops::Range;

use crate::simulate::level::Held;

/// One micro-batch of a step or an evaluation: its place in the batch, and what it is for.
///
/// Build it with [`MicroBatch::new`]; fields may be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// The micro-batch's index in the step, from 0.
    pub index: usize,
    /// The samples of the step's batch that it holds.
    pub samples: Range<u64>,
    /// The step's number, from 0.
    pub step: u64,
    /// Whether gradients are taken; false in evaluation and inference.
    pub train: bool,
}

impl MicroBatch {
    /// Micro-batch `index` (from 0) of step `step` (from 0), which holds `samples` of the step's
    /// batch; `train` says whether gradients are taken.
    pub const fn new(index: usize, samples: Range<u64>, step: u64, train: bool) -> Self {
        Self {
            index,
            samples,
            step,
            train,
        }
    }
}

/// When a device worked on an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// Seconds from its beginning to the end of the step's work.
    pub start: f64,
    /// Seconds from its end to the end of the step's work.
    pub end: f64,
}

/// A part of a model on one device. It lives on the thread of its worker and need not be `Send`.
pub trait Stage {
    /// What crosses a boundary: activations on the way down, their gradients on the way back.
    type Flow: Send + 'static;
    /// Why an action failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Called before the first action of a step or an evaluation; clears what a failed one left,
    /// gradients too.
    ///
    /// # Errors
    /// Ends the step.
    fn begin(&mut self, step: u64) -> Result<(), Self::Error>;

    /// Waits for what the stage shares with others, processor time say, and holds it until the guard
    /// is dropped at the end of the action (and of the turn, if that follows). To wait here is to
    /// idle: the action's span begins after it.
    fn enter(&self) -> impl Sized + use<Self> {}

    /// The outputs of a micro-batch, remembering what its backward pass will need.
    ///
    /// # Errors
    /// Ends the step.
    fn forward(&mut self, m: &MicroBatch, x: Self::Flow) -> Result<Self::Flow, Self::Error>;

    /// Both gradients: dX handed back, dW added to the stage's own. `None` where nobody asked for dX.
    ///
    /// # Errors
    /// Ends the step.
    fn backward(
        &mut self,
        m: &MicroBatch,
        dy: Self::Flow,
    ) -> Result<Option<Self::Flow>, Self::Error> {
        let dx = self.input_grad(m, dy)?;
        self.weight_grad(m)?;
        Ok(dx)
    }

    /// dX, keeping what dW still needs.
    ///
    /// # Errors
    /// Ends the step.
    fn input_grad(
        &mut self,
        m: &MicroBatch,
        dy: Self::Flow,
    ) -> Result<Option<Self::Flow>, Self::Error>;

    /// dW, after `input_grad` of the same micro-batch.
    ///
    /// # Errors
    /// Ends the step.
    fn weight_grad(&mut self, m: &MicroBatch) -> Result<(), Self::Error>;

    /// Computes again what was not kept, ahead of the backward pass.
    ///
    /// # Errors
    /// Ends the step.
    fn recompute(&mut self, m: &MicroBatch) -> Result<(), Self::Error> {
        let _ = m;
        Ok(())
    }

    /// Called when an action is over, and the turn that follows it: a stage whose device works after it
    /// was asked marks the place.
    ///
    /// # Errors
    /// Ends the step.
    fn leave(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The bytes that the stage holds, if it counts them: asked after `begin` and after every action
    /// (and the turn that follows it).
    fn held(&mut self) -> Option<Held> {
        None
    }

    /// Called after the last action of a step: late errors of a device surface here.
    ///
    /// # Errors
    /// Ends the step.
    fn finish(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Asked after `finish`: when each action of the step ran, in their order, in seconds before
    /// `finish` was done. It is for a stage whose device works after it was asked; an action runs while
    /// it is called where there are none.
    ///
    /// # Errors
    /// Ends the step.
    fn ran(&mut self) -> Result<Vec<Ran>, Self::Error> {
        Ok(Vec::new())
    }
}
