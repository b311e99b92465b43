//! The kernels of dropout, shared with attention.

use std::ops::Range;

use crate::philox::{BLOCK, Stream};
use crate::simd::vectorised;

/// Threshold below which a random number drops its element, and the scale of the kept elements.
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    /// An element is dropped if its random bits are below this.
    threshold: u32,
    kept: f32,
}

impl Mask {
    /// Settings of a dropout rate from 0 to below 1.
    pub(super) fn new(rate: f32) -> Self {
        Self {
            // Below 1, so the product fits; a rate below 2⁻³² cannot be told from 0.
            threshold: (f64::from(rate) * 2f64.powi(32)) as u32,
            kept: 1.0 / (1.0 - rate),
        }
    }

    /// The threshold and the scale of the kept elements.
    #[cfg(any(test, feature = "cuda"))]
    pub(super) fn parts(self) -> (u32, f32) {
        (self.threshold, self.kept)
    }

    /// Calls `apply` in order with runs of `0..len`, each within one block of the stream, and the factors
    /// of their elements: 0 or 1/(1 − rate). Element 0 is element `first` of the stream.
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

    /// Multiplies `x` by its factors; `x[0]` is element `first` of the stream.
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

/// The factors of the channels of a sample.
pub(super) fn channels(mask: Mask, stream: Stream, factors: &mut [f32]) {
    factors.fill(1.0);
    dropout(mask, stream, 0, factors);
}

/// Multiplies each row of channels with the factors.
pub(super) fn multiply_rows(x: &mut [f32], factors: &[f32]) {
    vectorised!({
        for row in x.chunks_exact_mut(factors.len()) {
            row.iter_mut()
                .zip(factors)
                .for_each(|(x, factor)| *x *= factor);
        }
    });
}
