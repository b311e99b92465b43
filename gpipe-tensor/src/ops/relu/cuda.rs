//! The rectifier on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// max(x, 0).
pub(super) fn forward(gpu: &Gpu, x: &Tensor) -> Result<Tensor> {
    const OP: &str = "relu";
    let stored = x.dtype();
    let mut y = x.empty_like(x.shape().clone())?;
    let (to, n) = (y.written(OP, gpu, stored)?, x.elements());
    let x = x.operand(OP, gpu, stored)?;
    // SAFETY: both live on this handle, and have n elements.
    unsafe { gpu.launch(&kernels::forward(stored, x.at, to, n)) }?;
    Ok(y)
}

/// The gradient from the result.
pub(super) fn backward(gpu: &Gpu, y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    const OP: &str = "relu_grad";
    let stored = y.dtype();
    let mut dx = y.empty_like(y.shape().clone())?;
    let (to, n) = (dx.written(OP, gpu, stored)?, y.elements());
    let (y, dy) = (y.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    // SAFETY: all live on this handle and have n elements: their shapes were compared.
    unsafe { gpu.launch(&kernels::backward(stored, y.at, dy.at, to, n)) }?;
    Ok(dx)
}

/// x where positive, else slope · x.
pub(super) fn leaky(gpu: &Gpu, x: &Tensor, slope: f32) -> Result<Tensor> {
    const OP: &str = "leaky_relu";
    let stored = x.dtype();
    let mut y = x.empty_like(x.shape().clone())?;
    let (to, n) = (y.written(OP, gpu, stored)?, x.elements());
    let x = x.operand(OP, gpu, stored)?;
    // SAFETY: both live on this handle, and have n elements.
    unsafe { gpu.launch(&kernels::leaky(stored, x.at, to, n, slope)) }?;
    Ok(y)
}

/// The gradient of [`leaky`] from the result.
pub(super) fn leaky_grad(gpu: &Gpu, y: &Tensor, dy: &Tensor, slope: f32) -> Result<Tensor> {
    const OP: &str = "leaky_relu_grad";
    let stored = y.dtype();
    let mut dx = y.empty_like(y.shape().clone())?;
    let (to, n) = (dx.written(OP, gpu, stored)?, y.elements());
    let (y, dy) = (y.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    // SAFETY: all live on this handle and have n elements: their shapes were compared.
    unsafe { gpu.launch(&kernels::leaky_grad(stored, y.at, dy.at, to, n, slope)) }?;
    Ok(dx)
}
