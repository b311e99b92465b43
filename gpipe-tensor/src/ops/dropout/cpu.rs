//! The kernels of dropout, shared with attention.

use std::ops::Range;

use crate::philox::{BLOCK, Stream};
use crate::simd::vectorised;

/// Which numbers of a stream drop their element, and what the others are multiplied by.
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    /// Random bits below this drop.
    threshold: u32,
    kept: f32,
}

impl Mask {
    /// For a rate in 0..1.
    pub(super) fn new(rate: f32) -> Self {
        Self {
            // Below 1, so the product fits; a rate below 2⁻³² cannot be told from 0.
            threshold: (f64::from(rate) * 2f64.powi(32)) as u32,
            kept: 1.0 / (1.0 - rate),
        }
    }

    /// The threshold, and what the kept elements are multiplied by.
    #[cfg(any(test, feature = "cuda"))]
    pub(super) fn parts(self) -> (u32, f32) {
        (self.threshold, self.kept)
    }

    /// Hands to `apply`, in order, the runs of `0..len` that lie in one block of the stream each,
    /// with their elements' factors: 0 or 1/(1 − rate). Element 0 is the stream's element `first`.
    #[inline(always)]
    pub(in crate::ops) fn factors(
        self,
        stream: Stream,
        first: u64,
        len: usize,
        mut apply: impl FnMut(Range<usize>, &[f32]),
    ) {
        let mut start = 0;
        while start < len {
            let element = first + start as u64;
            let within = (element % BLOCK as u64) as usize;
            let run = (BLOCK - within).min(len - start);
            let bits = stream.block(element / BLOCK as u64);
            let mut factors = [0.0; BLOCK];
            for (factor, bits) in factors.iter_mut().zip(bits) {
                *factor = if bits >= self.threshold {
                    self.kept
                } else {
                    0.0
                };
            }
            apply(start..start + run, &factors[within..within + run]);
            start += run;
        }
    }

    /// Multiplies `x` by its factors; its first element is the stream's element `first`.
    #[inline(always)]
    pub(in crate::ops) fn apply(self, stream: Stream, first: u64, x: &mut [f32]) {
        self.factors(
            stream,
            first,
            x.len(),
            #[inline(always)]
            |run, factors| {
                for (x, factor) in x[run].iter_mut().zip(factors) {
                    *x *= factor;
                }
            },
        );
    }
}

/// Multiplies a chunk of a sample by its factors.
pub(super) fn dropout(mask: Mask, stream: Stream, first: u64, x: &mut [f32]) {
    vectorised!(mask.apply(stream, first, x));
}
