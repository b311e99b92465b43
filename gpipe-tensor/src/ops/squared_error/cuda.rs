//! The squared error on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::ops::deferred_scalar::DeferredScalar;
use crate::ops::sum::kernels::CHUNK;
use crate::{Result, Tensor};

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
