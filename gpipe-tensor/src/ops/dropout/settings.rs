//! What decides which elements dropout drops.

use std::ops::Range;

use super::cpu::Mask;
use crate::error::{Error, Result};
use crate::philox::Key;

/// What decides which elements are dropped: never which rows happen to be in the same tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// The probability that an element is dropped, in 0..1.
    pub rate: f32,
    /// The randomness of this layer in this step.
    pub key: Key,
    /// The samples that the rows of the tensor belong to.
    pub samples: Range<u64>,
}

impl Dropout {
    /// The mask for a tensor of this many samples; none at rate 0.
    pub(crate) fn mask(&self, op: &'static str, samples: usize) -> Result<Option<Mask>> {
        if !(0.0..1.0).contains(&self.rate) {
            let message = format!(
                "a rate of {} is no probability below 1: use 0 to drop nothing",
                self.rate
            );
            return Err(Error::Argument { op, message });
        }
        let Range { start, end } = self.samples;
        if end.checked_sub(start) != Some(samples as u64) {
            let expected = format!("one row for each of the samples {start}..{end}");
            return Err(Error::shape(op, expected, format!("{samples} rows")));
        }
        Ok((self.rate > 0.0).then(|| Mask::new(self.rate)))
    }
}
