//! The Gaussian error linear unit on a GPU: launches.

use super::form::Gelu;
use super::kernels::{self, Backward};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{Result, Tensor};

/// GELU of each element.
pub(super) fn forward(gpu: &Gpu, x: &Tensor, form: Gelu) -> Result<Tensor> {
    const OP: &str = "gelu";
    let stored = x.dtype();
    let mut y = x.empty_like(x.shape().clone())?;
    let to = y.written(OP, gpu, stored)?;
    let (n, width) = (x.elements(), x.shape().last());
    let x = x.operand(OP, gpu, stored)?;
    let none = Pointer::NULL;
    // SAFETY: both live on this handle, and have n elements; there is no bias.
    unsafe {
        gpu.launch(&kernels::forward(
            form,
            stored,
            x.at,
            none,
            to,
            n,
            width.max(1),
        ))
    }?;
    Ok(y)
}

/// The gradient from x and dL/dy.
pub(super) fn backward(gpu: &Gpu, x: &Tensor, dy: &Tensor, form: Gelu) -> Result<Tensor> {
    const OP: &str = "gelu_grad";
    let stored = x.dtype();
    let mut dx = x.empty_like(x.shape().clone())?;
    let to = dx.written(OP, gpu, stored)?;
    let (n, width) = (x.elements(), x.shape().last());
    let (x, dy) = (x.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    // SAFETY: all live on this handle and have n elements: their shapes were compared; there is no
    // bias.
    unsafe {
        gpu.launch(&kernels::backward(
            form,
            stored,
            Backward {
                x: x.at,
                bias: Pointer::NULL,
                dy: dy.at,
                dx: to,
            },
            n,
            width.max(1),
        ))
    }?;
    Ok(dx)
}

/// GELU of each element, and the gradient over dL/dy.
pub(super) fn with_grad(gpu: &Gpu, x: &Tensor, dy: &mut Tensor, form: Gelu) -> Result<Tensor> {
    const OP: &str = "gelu_with_grad";
    let stored = x.dtype();
    let mut y = x.empty_like(x.shape().clone())?;
    let (to, over) = (y.written(OP, gpu, stored)?, dy.written(OP, gpu, stored)?);
    let n = x.elements();
    let x = x.operand(OP, gpu, stored)?;
    // SAFETY: all live on this handle and have n elements: their shapes were compared.
    unsafe { gpu.launch(&kernels::with_grad(form, stored, [x.at, to, over], n)) }?;
    Ok(y)
}
