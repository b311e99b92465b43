//! The binary cross-entropy on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::ops::deferred_scalar::DeferredScalar;
use crate::ops::sum::kernels::CHUNK;
use crate::{DType, Result, Tensor};

/// The loss; the gradient overwrites `y`.
pub(super) fn binary_cross_entropy(
    gpu: &Gpu,
    y: &mut Tensor,
    target: &Tensor,
    divisor: f64,
) -> Result<DeferredScalar> {
    const OP: &str = "binary_cross_entropy";
    let (n, factor) = (y.elements(), (1.0 / divisor) as f32);
    let count = n.div_ceil(CHUNK);
    let sums = gpu.alloc(8 * count)?;
    let stored = y.dtype();
    let at = y.written(OP, gpu, stored)?;
    let target = target.operand(OP, gpu, DType::F32)?;
    let to = sums.at(0);
    // SAFETY: all live on this handle; y and the targets have n elements, since their shapes were
    // compared, and there is a sum for each chunk.
    unsafe {
        gpu.launch(&kernels::binary_cross_entropy(
            stored, at, target.at, to, n, factor,
        ))
    }?;
    Ok(DeferredScalar::on_device(sums, count, divisor))
}
