//! Element-wise operations, chunk by chunk.

use crate::parallel::for_each;
use crate::{Result, Tensor};

/// A tensor like `x` whose chunks of this many elements `kernel` computes from those of `x`, given the index
/// of the chunk.
pub(super) fn map(
    x: &Tensor,
    chunk: usize,
    kernel: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) -> Result<Tensor> {
    let mut out = Tensor::empty(x.device(), x.shape().clone())?;
    let chunks = x
        .f32s()?
        .chunks(chunk)
        .zip(out.f32s_mut()?.chunks_mut(chunk));
    for_each(x.device(), chunks.enumerate(), |(index, (x, out))| {
        kernel(index, x, out);
    });
    Ok(out)
}

/// As [`map`], from the chunks of `a` and of `b`, which has as many elements.
pub(super) fn map_two(
    a: &Tensor,
    b: &Tensor,
    chunk: usize,
    kernel: impl Fn(usize, &[f32], &[f32], &mut [f32]) + Sync,
) -> Result<Tensor> {
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let operands = a.f32s()?.chunks(chunk).zip(b.f32s()?.chunks(chunk));
    let chunks = operands.zip(out.f32s_mut()?.chunks_mut(chunk));
    for_each(a.device(), chunks.enumerate(), |(index, ((a, b), out))| {
        kernel(index, a, b, out);
    });
    Ok(out)
}

/// The tensor itself if nothing else holds it, else a copy: something that may be overwritten.
pub(super) fn own(x: Tensor) -> Result<Tensor> {
    if x.is_unique() {
        return Ok(x);
    }
    x.copy_to(x.device())
}
