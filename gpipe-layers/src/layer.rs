//! The one trait that a model is made of.

use std::ops::Range;

use gpipe_tensor::Tensors;

use crate::{Cost, Error, Flow, Param, Pending, Result, Saved};

/// One step of a model: what it costs, what it computes, and its two gradients.
///
/// Ownership tells the story of the split backward pass: `forward` gives [`Saved`], `input_grad`
/// consumes it and gives [`Pending`], `weight_grad` consumes that. Taking a gradient twice, or the
/// weight gradient before the input gradient, does not compile.
///
/// # The memory contract
///
/// So that a peak can be predicted to the byte ([`Memory`](crate::Memory) is the other half):
/// a call holds what it was given (`x`, `dy`, `saved`, `pending`) until it returns, allocates what
/// it returns, and frees everything else that it allocated.
pub trait Layer: Send {
    /// The layer's global name, such as `transformer.h.3.attn`.
    fn name(&self) -> &str;

    /// How many tensors of the flow it takes, from the first; the rest pass by.
    fn arity(&self) -> usize {
        1
    }

    /// FLOPs, bytes and output shapes for these inputs, before any tensor exists
    /// (Lingvo's `FPropMeta`).
    ///
    /// # Errors
    /// If the layer cannot take such a flow.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost>;

    /// Lingvo's own estimate of the forward pass, in its FLOPs
    /// ([`CostModel::Lingvo`](crate::CostModel::Lingvo)).
    ///
    /// # Errors
    /// If Lingvo has no formula for such a layer, or the layer cannot take such a flow.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let _ = inputs;
        Err(Error::Config(format!(
            "Lingvo has no cost formula for {}: use the complete costs",
            self.name()
        )))
    }

    /// Computes the outputs, and what the backward pass needs to remember.
    ///
    /// # Errors
    /// If the layer cannot take such tensors.
    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)>;

    /// dX from dY, and what dW still needs. The flow of gradients has one tensor for each float
    /// tensor of the forward flow (indices have none).
    ///
    /// # Errors
    /// If `dy` does not have the shapes of the outputs.
    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)>;

    /// [`input_grad`](Self::input_grad) where nobody wants dX: the first layer of a model.
    ///
    /// # Errors
    /// As `input_grad`.
    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        Ok(self.input_grad(saved, dy)?.1)
    }

    #[doc(hidden)]
    fn last_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        self.param_only_grad(saved, dy)
    }

    /// Adds dW to the gradients.
    ///
    /// # Errors
    /// If the parameters were not made.
    fn weight_grad(&mut self, pending: Pending) -> Result<()>;

    /// The two in a row; a layer may fuse them if the bits stay the same.
    ///
    /// # Errors
    /// As `input_grad` and `weight_grad`.
    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let (dx, pending) = self.input_grad(saved, dy)?;
        self.weight_grad(pending)?;
        Ok(dx)
    }

    /// Begins a mini-batch: discards what an unfinished one left in the layer's own state.
    ///
    /// Called before the first pass of every training step and every evaluation, and so also after
    /// a step that failed. Calling it twice is the same as calling it once. A layer without state
    /// of its own needs nothing here.
    ///
    /// # Errors
    /// If the state cannot be discarded.
    fn begin_mini_batch(&mut self) -> Result<()> {
        Ok(())
    }

    /// Applies to the layer's own state what the passes of this mini-batch recorded.
    ///
    /// Called once after a training step that succeeded on all workers, wherever the model is cut;
    /// not after an evaluation, nor after a step that was run again to find a value that is not
    /// finite. What is applied here is part of the model; what [`forward`](Self::forward) and
    /// [`weight_grad`](Self::weight_grad) record before is not, until then.
    ///
    /// `forward` may run twice for the same samples, because a stage that keeps only its inputs
    /// computes them again: record under [`samples`](PassContext::samples), so that the second pass replaces
    /// the first, or record in `weight_grad`, which runs once for each micro-batch. `forward` runs
    /// in evaluation too, with [`train`](PassContext::train) false.
    ///
    /// # Errors
    /// If the state cannot be applied.
    fn commit_mini_batch(&mut self) -> Result<()> {
        Ok(())
    }

    /// Visits the parameters, always in the same order.
    fn params(&mut self, visit: &mut dyn FnMut(&mut Param));
}

/// What a pass needs to know besides its tensors: the keys of counter-based randomness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassContext {
    /// The run's seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// Which samples of the step's batch these rows are: never which micro-batch.
    pub samples: Range<u64>,
    /// Whether to drop out; false in evaluation.
    pub train: bool,
}

impl PassContext {
    /// A training pass over these samples of a step's batch.
    pub fn training(seed: u64, step: u64, samples: Range<u64>) -> Self {
        Self {
            seed,
            step,
            samples,
            train: true,
        }
    }

    /// A pass of an evaluation over these samples: nothing is dropped out.
    pub fn evaluation(samples: Range<u64>) -> Self {
        Self {
            seed: 0,
            step: 0,
            samples,
            train: false,
        }
    }
}
