//! The softmax on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// The softmax of each row, or of the lower triangle of squares of rows.
pub(super) fn forward(gpu: &Gpu, x: &Tensor, causal: bool) -> Result<Tensor> {
    const OP: &str = "softmax";
    let mut y = Tensor::empty(x.device(), x.shape().clone())?;
    let width = x.shape().last().max(1);
    let (to, rows) = (y.written(OP, gpu)?, x.elements() / width);
    let x = x.operand(OP, gpu)?;
    gpu.launch(&cuda::forward(DType::F32, x.at, to, rows, width, causal))?;
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
    let mut dx = Tensor::empty(y.device(), y.shape().clone())?;
    let width = y.shape().last().max(1);
    let (to, rows) = (dx.written(op, gpu)?, y.elements() / width);
    let (y, dy) = (y.operand(op, gpu)?, dy.operand(op, gpu)?);
    gpu.launch(&cuda::backward(
        DType::F32,
        y.at,
        dy.at,
        to,
        rows,
        width,
        causal,
    ))?;
    Ok(dx)
}
