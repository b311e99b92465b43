//! Dropout (Srivastava et al., JMLR 15, 2014), scaled in training.

mod cpu;

use std::ops::Range;

pub(super) use cpu::Mask;

use super::chunks::own;
use crate::parallel::{CHUNK, each};
use crate::philox::Key;
use crate::{Error, Result, Tensor};

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
    /// What to do to a tensor of so many samples; nothing at rate 0.
    pub(super) fn mask(&self, op: &'static str, samples: usize) -> Result<Option<Mask>> {
        if !(0.0..1.0).contains(&self.rate) {
            let message = format!(
                "a rate of {} drops everything or nothing sensible: use 0 or more, below 1",
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

/// Each element is 0 with probability `rate`, else x/(1 − rate); in place if nothing else holds `x`.
///
/// The factor of element e of sample s is a function of (key, s, e): the same when it is computed
/// again, in another micro-batch or on another stage. dL/dx is dL/dy times the same factors, so the
/// function is its own gradient.
///
/// # Errors
/// [`Error::Argument`] for a rate outside of 0..1; [`Error::Shape`] unless there is one row (along
/// the outermost extent) for each sample; errors of allocation.
pub fn dropout(x: Tensor, dropout: &Dropout) -> Result<Tensor> {
    let samples = x.shape().rows();
    let Some(mask) = dropout.mask("dropout", samples)? else {
        return Ok(x);
    };
    let mut x = own(x)?;
    let width = (x.elements() / samples.max(1)).max(1);
    let device = x.device().clone();
    let chunks = x.f32s_mut()?.chunks_mut(width).zip(dropout.samples.clone());
    let chunks = chunks.flat_map(|(x, sample)| {
        let stream = dropout.key.sample(sample);
        let parts = x.chunks_mut(CHUNK).enumerate();
        parts.map(move |(part, x)| (stream, (part * CHUNK) as u64, x))
    });
    each(&device, chunks, |(stream, first, x)| {
        cpu::dropout(mask, stream, first, x)
    });
    Ok(x)
}
