//! A loss that is a function of the outputs and a target.

use std::fmt;

use gpipe_sched::{LossStage, MicroBatch};
use gpipe_tensor::{Device, Tensor, Tensors};

use crate::{Error, Result, extras};

/// The loss of a micro-batch, and its gradient with respect to the outputs: of their shape, and made on
/// their device.
type LossFn<G> = dyn FnMut(&Tensor, G) -> Result<(f64, Tensor)> + Send;

/// A custom loss as the loss stage after the last stage, made by
/// [`AssemblyBuilder::build_with_loss`](crate::AssemblyBuilder::build_with_loss). Its bytes are counted
/// with the last stage.
pub struct CustomLoss<G> {
    function: Box<LossFn<G>>,
    device: Device,
    transit: Device,
    losses: Vec<f64>,
}

impl<G> fmt::Debug for CustomLoss<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomLoss")
            .field("device", &self.device)
            .field("losses", &self.losses)
            .finish_non_exhaustive()
    }
}

impl<G> CustomLoss<G> {
    /// A loss on the worker of the last stage, which counts on `device`; gradients on their way back
    /// count on `transit`. `function` takes the outputs of a micro-batch and its target and returns
    /// the loss and its gradient with respect to the outputs. Losses and gradients of micro-batches are
    /// added up: to get a mean, divide both by the count of the whole batch. Tensors that the model returns
    /// behind its first are not seen, and have gradients of zero.
    pub fn new(
        device: Device,
        transit: Device,
        function: impl FnMut(&Tensor, G) -> Result<(f64, Tensor)> + Send + 'static,
    ) -> Self {
        Self {
            function: Box::new(function),
            device,
            transit,
            losses: Vec::new(),
        }
    }
}

impl<G: Send + 'static> LossStage<Tensors> for CustomLoss<G> {
    type Target = G;
    type Error = Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.losses.clear();
        Ok(())
    }

    fn loss(&mut self, m: &MicroBatch, y: Tensors, target: G) -> Result<Option<Tensors>> {
        let (y, extras) = extras::receive(y, &self.device)?;
        let (loss, dy) = (self.function)(&y, target)?;
        if m.train && (dy.shape() != y.shape() || !dy.dtype().is_float()) {
            return Err(Error::Assembly(format!(
                "a gradient of {} of shape {} for outputs of {} of shape {}: return one of that shape",
                dy.dtype(),
                dy.shape(),
                y.dtype(),
                y.shape()
            )));
        }
        drop(y);
        if self.losses.len() <= m.index {
            self.losses.resize(m.index + 1, 0.0);
        }
        self.losses[m.index] = loss;
        if !m.train {
            return Ok(None);
        }
        Ok(Some(extras::gradients(dy, extras, &self.transit)?))
    }

    fn losses(&mut self) -> Result<Vec<f64>> {
        Ok(std::mem::take(&mut self.losses))
    }
}
