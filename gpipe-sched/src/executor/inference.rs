//! Inference: stages without gradients, and a loss stage that collects outputs instead of a loss.

use std::convert::Infallible;
use std::error::Error;

use crate::executor::batch::Item;
use crate::executor::failure::PipelineError;
use crate::executor::loss_stage::LossStage;
use crate::executor::pipeline::Pipeline;
use crate::executor::stage::{MicroBatch, Stage};

/// A stage that only infers: a forward pass and nothing else.
///
/// Every type that implements this trait is a [`Stage`]. Its gradients are an error,
/// [`InferenceError::NoGradient`], so a training schedule fails at the first backward action with
/// stage and micro-batch, and no dummy methods are needed. This is a trait of its own, rather than
/// defaults for the gradients of `Stage`, so that a stage that trains cannot leave one out by
/// mistake: there the compiler asks for both.
///
/// A stage that also counts memory, waits for shared resources or works asynchronously implements
/// [`Stage`] itself.
///
/// ```
/// use std::convert::Infallible;
/// use gpipe_sched::{CollectOutputs, InferenceStage, MicroBatch, Pipeline, forward_only};
///
/// /// Appends its number to a text.
/// struct Append(usize);
///
/// impl InferenceStage for Append {
///     type Flow = String;
///     type Error = Infallible;
///
///     fn forward(&mut self, _m: &MicroBatch, text: String) -> Result<String, Infallible> {
///         Ok(format!("{text} {}", self.0))
///     }
/// }
///
/// let make_stage = |stage| Ok::<_, Infallible>(Append(stage));
/// let mut pipeline = Pipeline::build(forward_only(3, 2)?, make_stage, CollectOutputs::build)?;
/// let outputs = pipeline.infer(vec!["a".to_owned(), "b".to_owned()])?;
/// assert_eq!(outputs, ["a 0 1 2", "b 0 1 2"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait InferenceStage {
    /// What crosses a boundary between stages.
    type Flow: Send + 'static;
    /// Why a forward pass failed.
    type Error: Error + Send + Sync + 'static;

    /// Called before the first micro-batch of a call; clears what a failed call left. Does nothing by
    /// default.
    ///
    /// # Errors
    /// Ends the call.
    fn begin(&mut self, step: u64) -> Result<(), Self::Error> {
        let _ = step;
        Ok(())
    }

    /// The outputs of a micro-batch.
    ///
    /// # Errors
    /// Ends the call.
    fn forward(&mut self, m: &MicroBatch, x: Self::Flow) -> Result<Self::Flow, Self::Error>;
}

/// The error of an action of an [`InferenceStage`] or of [`CollectOutputs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InferenceError<E> {
    /// The stage's own error.
    #[error(transparent)]
    Stage(E),
    /// A training schedule asks for a gradient.
    #[error("only infers, so there is no gradient: run forward passes only, or implement `Stage`")]
    NoGradient,
}

impl<T: InferenceStage> Stage for T {
    type Flow = T::Flow;
    type Error = InferenceError<T::Error>;

    fn begin(&mut self, step: u64) -> Result<(), Self::Error> {
        InferenceStage::begin(self, step).map_err(InferenceError::Stage)
    }

    fn forward(&mut self, m: &MicroBatch, x: T::Flow) -> Result<T::Flow, Self::Error> {
        InferenceStage::forward(self, m, x).map_err(InferenceError::Stage)
    }

    fn input_grad(
        &mut self,
        _m: &MicroBatch,
        _dy: T::Flow,
    ) -> Result<Option<T::Flow>, Self::Error> {
        Err(InferenceError::NoGradient)
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Self::Error> {
        Err(InferenceError::NoGradient)
    }
}

/// A loss stage without a loss: keeps the outputs of each micro-batch until they are taken.
///
/// It works for any flow. [`Pipeline::infer`] runs a whole call; [`Pipeline::forward`] and then
/// [`Pipeline::with_loss_stage`] give the timeline of the call beside its outputs. A micro-batch that
/// trains is refused with [`InferenceError::NoGradient`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectOutputs<F> {
    outputs: Vec<Option<F>>,
}

impl<F> CollectOutputs<F> {
    /// Empty: what [`Pipeline::build`] takes as `make_loss_stage`.
    ///
    /// # Errors
    /// None.
    pub fn build() -> Result<Self, Infallible> {
        Ok(Self::default())
    }

    /// Takes the outputs of one micro-batch of the last call, by its index; `None` where there are none
    /// or they were taken before.
    pub fn take(&mut self, micro_batch: usize) -> Option<F> {
        self.outputs.get_mut(micro_batch)?.take()
    }

    /// Takes all outputs of the last call that are left, by index of micro-batch.
    pub fn take_all(&mut self) -> Vec<F> {
        self.outputs.drain(..).flatten().collect()
    }
}

impl<F> Default for CollectOutputs<F> {
    fn default() -> Self {
        Self {
            outputs: Vec::new(),
        }
    }
}

impl<F> LossStage<F> for CollectOutputs<F> {
    type Target = ();
    type Error = InferenceError<Infallible>;

    fn begin(&mut self, _step: u64) -> Result<(), Self::Error> {
        self.outputs.clear();
        Ok(())
    }

    fn loss(&mut self, m: &MicroBatch, y: F, _target: ()) -> Result<Option<F>, Self::Error> {
        if m.train {
            return Err(InferenceError::NoGradient);
        }
        let count = self.outputs.len().max(m.index + 1);
        self.outputs.resize_with(count, || None);
        self.outputs[m.index] = Some(y);
        Ok(None)
    }

    fn losses(&mut self) -> Result<Vec<f64>, Self::Error> {
        Ok(Vec::new())
    }
}

impl<S: Stage + 'static> Pipeline<S, CollectOutputs<S::Flow>> {
    /// Runs any number of inputs forward, one micro-batch each, and returns their outputs in the same
    /// order. Input `i` counts as sample `i` of step 0.
    ///
    /// Over several ranks all of them call it with as many inputs, of which those of the rank of the first stage count;
    /// outputs are on the rank of the last stage, and none on the others.
    ///
    /// # Errors
    /// If there is no input; otherwise the first failure of a worker.
    pub fn infer(&mut self, inputs: Vec<S::Flow>) -> Result<Vec<S::Flow>, PipelineError> {
        let item = |(index, input)| {
            let sample = index as u64;
            Item {
                micro_batch: MicroBatch::new(index, sample..sample + 1, 0, false),
                input,
                target: (),
            }
        };
        self.forward(inputs.into_iter().enumerate().map(item).collect())?;
        match self.is_here(self.last_device()) {
            true => self.with_loss_stage(|outputs| Ok::<_, Infallible>(outputs.take_all())),
            false => Ok(Vec::new()),
        }
    }
}
