//! The context of a pass: the keys of counter-based random numbers.

use std::ops::Range;

use gpipe_tensor::philox::Key;

/// Context of a pass besides its tensors: the keys of counter-based random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassContext {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from 0.
    pub step: u64,
    /// The samples of the step's batch that these rows are, whatever the micro-batches.
    pub samples: Range<u64>,
    /// Whether this is a training pass; false in evaluation, which drops nothing out.
    pub train: bool,
}

impl PassContext {
    /// The key of the random numbers that a layer of this name draws in this step. Philox counts steps
    /// from 1.
    pub fn key(&self, name: &str) -> Key {
        Key::new(self.seed, name, self.step.wrapping_add(1))
    }

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
