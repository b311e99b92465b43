//! What the executor knows of a model: stages that take and give flows.

use std::ops::Range;

use crate::simulate::level::Held;

/// One micro-batch of a step or an evaluation: its place in the batch, and what it is for.
///
/// Build it with [`MicroBatch::new`]; fields may be added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// The time of an action on an asynchronous device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// Seconds from the action's start to the end of the step's work.
    pub start: f64,
    /// Seconds from the action's end to the end of the step's work.
    pub end: f64,
}

/// Reserves a resource: see [`Stage::reserve`].
pub type Reserve = Box<dyn FnOnce() -> Reservation + Send>;

/// Holds a resource until it is dropped: see [`Stage::reserve`].
pub type Reservation = Box<dyn Send>;

/// A part of a model on one device. It lives on the thread of its worker and need not be `Send`. A
/// stage that only infers implements [`InferenceStage`](crate::InferenceStage) instead.
pub trait Stage {
    /// What crosses a boundary between stages: activations forward, their gradients backward.
    type Flow: Send + 'static;
    /// The error of a failed call.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Called before the first action of step `step` (from 0) or of an evaluation. Clears gradients
    /// and whatever a failed step left.
    ///
    /// # Errors
    /// Ends the step.
    fn begin(&mut self, step: u64) -> Result<(), Self::Error>;

    /// Waits for a resource that the stage shares with others, such as processor time, and returns
    /// a guard that holds it until the end of the action (and of the loss, if that follows). The
    /// wait counts as idle time: the action's span starts after it.
    fn enter(&self) -> impl Sized + use<Self> {}

    /// What reserves that resource for the calling worker, which is about to sleep until a flow arrives.
    ///
    /// The thread that brings the flow makes the reservation and then wakes the worker, which drops it
    /// when it has [entered](Self::enter). Until then, milliseconds on a busy machine, others would
    /// take what it wakes up for. Making a reservation must neither block nor panic.
    fn reserve(&self) -> Option<Reserve> {
        None
    }

    /// The outputs of a micro-batch. If it trains, the stage keeps what its backward pass needs.
    ///
    /// # Errors
    /// Ends the step.
    fn forward(&mut self, m: &MicroBatch, x: Self::Flow) -> Result<Self::Flow, Self::Error>;

    /// Both gradients: returns dX, the gradient of the stage's input, and adds dW to the stage's
    /// weight gradients. Stage 0 may return `None`. By default `input_grad` and then `weight_grad`.
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

    /// Returns dX, and keeps what dW needs. Stage 0 may return `None`.
    ///
    /// # Errors
    /// Ends the step.
    fn input_grad(
        &mut self,
        m: &MicroBatch,
        dy: Self::Flow,
    ) -> Result<Option<Self::Flow>, Self::Error>;

    /// Adds dW to the stage's weight gradients, after `input_grad` of the same micro-batch.
    ///
    /// # Errors
    /// Ends the step.
    fn weight_grad(&mut self, m: &MicroBatch) -> Result<(), Self::Error>;

    /// Recomputes activations that were not kept, ahead of the backward pass.
    ///
    /// # Errors
    /// Ends the step.
    fn recompute(&mut self, m: &MicroBatch) -> Result<(), Self::Error> {
        let _ = m;
        Ok(())
    }

    /// Called at the end of each action (and of the loss that follows it). A stage on an
    /// asynchronous device records an event here.
    ///
    /// # Errors
    /// Ends the step.
    fn leave(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The bytes that the stage holds, if it counts them. Called after `begin` and after every
    /// action (and the loss that follows it).
    fn held(&mut self) -> Option<Held> {
        None
    }

    /// Called after the last action of a step; late errors of an asynchronous device surface here.
    ///
    /// # Errors
    /// Ends the step.
    fn finish(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The times at which the actions of the step ran on an asynchronous device, in the order of
    /// the actions, relative to the end of `finish`. Called after `finish`. Empty, as by default,
    /// for a stage whose actions run while they are called.
    ///
    /// # Errors
    /// Ends the step.
    fn ran(&mut self) -> Result<Vec<Ran>, Self::Error> {
        Ok(Vec::new())
    }
}
