//! The softmax on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// The softmax of each row, or of the lower triangle of squares of rows.
pub(super) fn forward(gpu: &Gpu, x: &Tensor, causal: bool) -> Result<Tensor> {
    const OP: &str = "softmax";
    let stored = x.dtype();
    let mut y = x.empty_like(x.shape().clone())?;
    let width = x.shape().last().max(1);
    let (to, rows) = (y.written(OP, gpu, stored)?, x.elements() / width);
    let x = x.operand(OP, gpu, stored)?;
    // SAFETY: both live on this handle, and have `rows` rows of `width` elements.
    unsafe { gpu.launch(&kernels::forward(stored, x.at, to, rows, width, causal)) }?;
    Ok(y)
}

/// The gradient from the result.
pub(super) fn backward(
    op: &'static str,
    gpu: &Gpu,
    y: &Tensor,
    dy: &Tensor,
    causal: bool,
) -> Result<Tensor> {
    let stored = y.dtype();
    let mut dx = y.empty_like(y.shape().clone())?;
    let width = y.shape().last().max(1);
    let (to, rows) = (dx.written(op, gpu, stored)?, y.elements() / width);
    let (y, dy) = (y.operand(op, gpu, stored)?, dy.operand(op, gpu, stored)?);
    // SAFETY: all live on this handle and have `rows` rows of `width` elements: their shapes were
    // compared.
    unsafe {
        gpu.launch(&kernels::backward(
            stored, y.at, dy.at, to, rows, width, causal,
        ))
    }?;
    Ok(dx)
}
