//! The stage after the last one: the loss, or another consumer of a pipeline's outputs.

use crate::executor::stage::MicroBatch;

/// The stage after the last one: takes a pipeline's outputs, and gives the gradient of the loss
/// with respect to them. It lives on the worker of the last stage, and runs directly after each of
/// that stage's forward passes, as part of the same action.
pub trait LossStage<F> {
    /// What the outputs are compared with, one per micro-batch.
    type Target: Send + 'static;
    /// The error of a failed call.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Called before the first action of step `step` (from 0) or of an evaluation, and before that of the stages of its
    /// worker; drops what a failed step left.
    ///
    /// # Errors
    /// Ends the step.
    fn begin(&mut self, step: u64) -> Result<(), Self::Error>;

    /// Computes the loss of a micro-batch from its outputs `y`. Returns the gradient of the loss
    /// with respect to `y` if the micro-batch trains, else `None`.
    ///
    /// # Errors
    /// Ends the step.
    fn loss(
        &mut self,
        m: &MicroBatch,
        y: F,
        target: Self::Target,
    ) -> Result<Option<F>, Self::Error>;

    /// The loss of each micro-batch since `begin`, by its index: the order of the calls of [`loss`](Self::loss) under built-in
    /// schedules, which a table may change. Called once per step, after all
    /// stages of this worker have finished.
    ///
    /// # Errors
    /// If the losses cannot be read from their device.
    fn losses(&mut self) -> Result<Vec<f64>, Self::Error>;
}
