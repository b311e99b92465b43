//! The stage after the last one: the loss, or whatever else takes a pipeline's outputs.

use crate::executor::stage::MicroBatch;

/// The turn: the stage after the last one, where a forward flow becomes a backward one. It lives
/// on the worker of the last stage.
pub trait LossStage<F> {
    /// What the outputs are compared with.
    type Target: Send + 'static;
    /// Why it failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Called before the first action of a step or an evaluation.
    ///
    /// # Errors
    /// Ends the step.
    fn begin(&mut self, step: u64) -> Result<(), Self::Error>;

    /// Takes the outputs of a micro-batch; gives their gradient if the micro-batch trains.
    ///
    /// # Errors
    /// Ends the step.
    fn loss(
        &mut self,
        m: &MicroBatch,
        y: F,
        target: Self::Target,
    ) -> Result<Option<F>, Self::Error>;

    /// The loss of each micro-batch since `begin`, by its index: read once a step, when all stages of
    /// this worker have finished.
    ///
    /// # Errors
    /// If a device cannot tell them.
    fn losses(&mut self) -> Result<Vec<f64>, Self::Error>;
}
