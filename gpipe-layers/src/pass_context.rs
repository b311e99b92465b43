//! The context of a pass: the keys of counter-based random numbers.

use std::ops::Range;

use gpipe_tensor::philox::Key;

/// Context of a pass besides its tensors: the keys of counter-based random numbers.
///
/// Build it with [`training`](Self::training), [`evaluation`](Self::evaluation) or [`new`](Self::new);
/// fields may be added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassContext {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from 0.
    pub step: u64,
    /// The samples of the step's batch that the rows hold; independent of the micro-batches.
    pub samples: Range<u64>,
    /// Whether this is a training pass; false in evaluation, which drops nothing out.
    pub train: bool,
}

impl PassContext {
    /// A pass over `samples` of the batch of step `step` (from 0) in a run with this seed; `train` says
    /// whether it is a training pass.
    pub const fn new(seed: u64, step: u64, samples: Range<u64>, train: bool) -> Self {
        Self {
            seed,
            step,
            samples,
            train,
        }
    }

    /// The key of the random numbers that a layer of this name draws in this step. Philox counts steps
    /// from 1.
    pub fn key(&self, name: &str) -> Key {
        Key::new(self.seed, name, self.step.wrapping_add(1))
    }

    /// A training pass over these samples of a step's batch.
    pub fn training(seed: u64, step: u64, samples: Range<u64>) -> Self {
        Self::new(seed, step, samples, true)
    }

    /// A pass of an evaluation over these samples: nothing is dropped out.
    pub fn evaluation(samples: Range<u64>) -> Self {
        Self::new(0, 0, samples, false)
    }
}
