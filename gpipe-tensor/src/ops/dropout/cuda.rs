//! Dropout on a GPU: launches.

use super::cpu::Mask;
use super::kernels::{self, Numbers};
use super::settings::Dropout;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// Multiplies the elements of `x` by their factors, in place.
pub(super) fn dropout(gpu: &Gpu, x: &mut Tensor, mask: Mask, dropout: &Dropout) -> Result<()> {
    let samples = x.shape().rows();
    let width = x.elements() / samples.max(1);
    let stored = x.dtype();
    let at = x.written("dropout", gpu, stored)?;
    let numbers = Numbers::new(mask, dropout.key, dropout.samples.start);
    // SAFETY: it lives on this handle, and has `samples` samples of `width` elements.
    unsafe { gpu.launch(&kernels::dropout(stored, at, at, samples, width, numbers)) }
}

/// Multiplies the channels of `x` by their factors, in place; extents are samples, pixels and channels.
pub(super) fn channels(
    gpu: &Gpu,
    x: &mut Tensor,
    extents: [usize; 3],
    mask: Mask,
    dropout: &Dropout,
) -> Result<()> {
    let stored = x.dtype();
    let at = x.written("dropout_channels", gpu, stored)?;
    let numbers = Numbers::new(mask, dropout.key, dropout.samples.start);
    // SAFETY: it lives on this handle, and has as many elements as the extents say.
    unsafe { gpu.launch(&kernels::channels(stored, at, extents, numbers)) }
}
