//! The squared error on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::ops::deferred_scalar::DeferredScalar;
use crate::ops::sum::kernels::CHUNK;
use crate::{DType, Result, Tensor};

/// The loss; the gradient overwrites `y`.
pub(super) fn squared_error(
    gpu: &Gpu,
    y: &mut Tensor,
    target: &Tensor,
    divisor: f64,
) -> Result<DeferredScalar> {
    const OP: &str = "squared_error";
    let (n, slope) = (y.elements(), (2.0 / divisor) as f32);
    let count = n.div_ceil(CHUNK);
    let sums = gpu.alloc(8 * count)?;
    let stored = y.dtype();
    let at = y.written(OP, gpu, stored)?;
    let target = target.operand(OP, gpu, stored)?;
    // SAFETY: all live on this handle; y and the targets have n elements, since their shapes were
    // compared, and there is a sum for each chunk.
    unsafe {
        gpu.launch(&kernels::squared_error(
            stored,
            at,
            target.at,
            sums.at(0),
            n,
            slope,
        ))
    }?;
    Ok(DeferredScalar::on_device(sums, count, divisor))
}

/// The same with labels, each less than `width`, as targets; `terms` divides the loss.
pub(super) fn one_hot(
    gpu: &Gpu,
    y: &mut Tensor,
    labels: &Tensor,
    width: usize,
    terms: f64,
) -> Result<DeferredScalar> {
    const OP: &str = "one_hot_squared_error";
    let (n, slope) = (y.elements(), (2.0 / terms) as f32);
    let count = n.div_ceil(CHUNK);
    let sums = gpu.alloc(8 * count)?;
    let stored = y.dtype();
    let at = y.written(OP, gpu, stored)?;
    let labels = labels.operand(OP, gpu, DType::U32)?;
    let to = sums.at(0);
    // SAFETY: all live on this handle; there is a label for each row of `width` of the n elements, and a sum for
    // each chunk.
    unsafe {
        gpu.launch(&kernels::one_hot(
            stored, at, labels.at, to, n, width, slope,
        ))
    }?;
    Ok(DeferredScalar::on_device(sums, count, terms))
}
