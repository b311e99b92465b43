//! Multiplication by a number on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// a · by.
pub(super) fn scale(gpu: &Gpu, a: &Tensor, by: f32) -> Result<Tensor> {
    const OP: &str = "scale";
    let stored = a.dtype();
    let mut out = a.empty_like(a.shape().clone())?;
    let to = out.written(OP, gpu, stored)?;
    let x = a.operand(OP, gpu, stored)?;
    // SAFETY: both live on this handle, and have as many elements.
    unsafe { gpu.launch(&kernels::scale(stored, x.at, to, a.elements(), by)) }?;
    Ok(out)
}

/// a *= by.
pub(super) fn scale_assign(gpu: &Gpu, a: &mut Tensor, by: f32) -> Result<()> {
    let (n, stored) = (a.elements(), a.dtype());
    let at = a.written("scale_assign", gpu, stored)?;
    // SAFETY: it lives on this handle, and has n elements.
    unsafe { gpu.launch(&kernels::scale(stored, at, at, n, by)) }
}
