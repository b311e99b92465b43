//! Sums of tensors on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// a + b, where b is repeated.
pub(in crate::ops) fn add(gpu: &Gpu, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "add";
    let stored = a.dtype();
    let mut out = a.empty_like(a.shape().clone())?;
    let (n, period) = (a.elements(), b.elements());
    let to = out.written(OP, gpu, stored)?;
    let (a, b) = (a.operand(OP, gpu, stored)?, b.operand(OP, gpu, stored)?);
    // SAFETY: the operands and the result live on this handle; a and the result have n elements, b has
    // `period`.
    unsafe { gpu.launch(&kernels::add(stored, a.at, b.at, to, n, period)) }?;
    Ok(out)
}

/// a += b, where b is repeated.
pub(super) fn add_assign(gpu: &Gpu, a: &mut Tensor, b: &Tensor) -> Result<()> {
    const OP: &str = "add_assign";
    let (n, period, stored) = (a.elements(), b.elements(), a.dtype());
    let at = a.written(OP, gpu, stored)?;
    let b = b.operand(OP, gpu, stored)?;
    // SAFETY: the operands live on this handle; a has n elements, b has `period`.
    unsafe { gpu.launch(&kernels::add(stored, at, b.at, at, n, period)) }
}

/// Fills `out` with a repeated row.
pub(in crate::ops) fn repeat(gpu: &Gpu, row: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "repeat";
    let (n, period, stored) = (out.elements(), row.elements(), out.dtype());
    let to = out.written(OP, gpu, stored)?;
    let row = row.operand(OP, gpu, stored)?;
    // SAFETY: the operands live on this handle; the result has n elements, the row has `period`.
    unsafe { gpu.launch(&kernels::repeat(stored, row.at, to, n, period)) }
}
