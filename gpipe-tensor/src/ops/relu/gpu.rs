//! The rectifier on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// max(x, 0).
pub(super) fn forward(gpu: &Gpu, x: &Tensor) -> Result<Tensor> {
    const OP: &str = "relu";
    let mut y = Tensor::empty(x.device(), x.shape().clone())?;
    let (to, n) = (y.written(OP, gpu)?, x.elements());
    gpu.launch(&cuda::forward(DType::F32, x.operand(OP, gpu)?.at, to, n))?;
    Ok(y)
}

/// The gradient from the result.
pub(super) fn backward(gpu: &Gpu, y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    const OP: &str = "relu_grad";
    let mut dx = Tensor::empty(y.device(), y.shape().clone())?;
    let (to, n) = (dx.written(OP, gpu)?, y.elements());
    let (y, dy) = (y.operand(OP, gpu)?, dy.operand(OP, gpu)?);
    gpu.launch(&cuda::backward(DType::F32, y.at, dy.at, to, n))?;
    Ok(dx)
}
