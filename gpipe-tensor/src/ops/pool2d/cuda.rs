//! Pools on a GPU: launches.

use super::kernels;
use super::plan::Plan;
use crate::cuda::Gpu;
use crate::{Result, Shape, Tensor};

/// The largest value of each window.
pub(super) fn max(gpu: &Gpu, plan: &Plan, x: &Tensor) -> Result<Tensor> {
    const OP: &str = "max_pool2d";
    let stored = x.dtype();
    let mut y = x.empty_like(plan.result())?;
    let (to, x) = (y.written(OP, gpu, stored)?, x.operand(OP, gpu, stored)?);
    // SAFETY: x and y live on this handle and have the shapes that the plan says.
    unsafe { gpu.launch(&kernels::max(stored, x.at, to, plan)) }?;
    Ok(y)
}

/// The gradient of [`max`].
pub(super) fn max_grad(gpu: &Gpu, plan: &Plan, x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    const OP: &str = "max_pool2d_grad";
    let stored = x.dtype();
    let mut dx = x.empty_like(x.shape().clone())?;
    let to = dx.written(OP, gpu, stored)?;
    let (x, dy) = (x.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    // SAFETY: all live on this handle; dx has the shape of x, and that of dy was compared with the result's.
    unsafe { gpu.launch(&kernels::max_grad(stored, x.at, dy.at, to, plan)) }?;
    Ok(dx)
}

/// The mean of each window.
pub(super) fn average(gpu: &Gpu, plan: &Plan, x: &Tensor) -> Result<Tensor> {
    const OP: &str = "avg_pool2d";
    let stored = x.dtype();
    let mut y = x.empty_like(plan.result())?;
    let (to, x) = (y.written(OP, gpu, stored)?, x.operand(OP, gpu, stored)?);
    // SAFETY: x and y live on this handle and have the shapes that the plan says.
    unsafe { gpu.launch(&kernels::average(stored, x.at, to, plan)) }?;
    Ok(y)
}

/// The gradient of [`average`].
pub(super) fn average_grad(gpu: &Gpu, plan: &Plan, dy: &Tensor, input: &Shape) -> Result<Tensor> {
    const OP: &str = "avg_pool2d_grad";
    let stored = dy.dtype();
    let mut dx = dy.empty_like(input.clone())?;
    let (to, dy) = (dx.written(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    // SAFETY: dx and dy live on this handle and have the shapes that the plan says: that of dy was compared.
    unsafe { gpu.launch(&kernels::average_grad(stored, dy.at, to, plan)) }?;
    Ok(dx)
}
