//! The CUDA kernels of dropout: entry points, parameters and grids.

use super::cpu::Mask;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::philox::{BLOCK, Key};

entries! {
    dropout<T>(
        x: In, y: Out, samples: U64, width: U64, first_sample: U64,
        key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    dropout_channels<T>(
        x: Both, samples: U64, pixels: U64, channels: U64, first_sample: U64,
        key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
}

/// The numbers that decide, and what is done to the elements.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub key: [u32; 2],
    pub first_sample: u64,
    pub threshold: u32,
    pub kept: f32,
}

impl Numbers {
    /// Nothing is dropped.
    pub const NONE: Self = Self {
        key: [0; 2],
        first_sample: 0,
        threshold: 0,
        kept: 1.0,
    };

    /// Those of a mask for the samples from `first_sample` on.
    pub fn new(mask: Mask, key: Key, first_sample: u64) -> Self {
        let (threshold, kept) = mask.parts();
        Self {
            key: key.words(),
            first_sample,
            threshold,
            kept,
        }
    }
}

/// y = x times its factors, for `samples` rows of `width` elements; `y` may be `x`.
pub(crate) fn dropout(
    stored: DType,
    x: Pointer,
    y: Pointer,
    samples: usize,
    width: usize,
    by: Numbers,
) -> Launch {
    let (rows, columns) = (samples as u64, width as u64);
    let [low, high] = by.key;
    let first = by.first_sample;
    dropout::call(
        stored,
        x,
        y,
        rows,
        columns,
        first,
        low,
        high,
        by.threshold,
        by.kept,
    )
    .over_elements(samples * width.div_ceil(BLOCK) * (BLOCK / 4))
}

/// Multiplies x with the factors of its channels, for `samples` of `pixels` rows of `channels` elements.
pub(crate) fn channels(
    stored: DType,
    x: Pointer,
    [samples, pixels, channels]: [usize; 3],
    by: Numbers,
) -> Launch {
    let [low, high] = by.key;
    dropout_channels::call(
        stored,
        x,
        samples as u64,
        pixels as u64,
        channels as u64,
        by.first_sample,
        low,
        high,
        by.threshold,
        by.kept,
    )
    .over_elements(samples * pixels * channels)
}
