//! The Gaussian error linear unit on a GPU.

use super::{Gelu, cuda};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// GELU of each element.
pub(super) fn forward(gpu: &Gpu, x: &Tensor, form: Gelu) -> Result<Tensor> {
    const OP: &str = "gelu";
    let mut y = Tensor::empty(x.device(), x.shape().clone())?;
    let (to, n, width) = (y.written(OP, gpu)?, x.elements(), x.shape().last());
    let x = x.operand(OP, gpu)?;
    let none = Pointer::NULL;
    gpu.launch(&cuda::forward(
        form,
        DType::F32,
        x.at,
        none,
        to,
        n,
        width.max(1),
    ))?;
    Ok(y)
}

/// The gradient from x and dL/dy.
pub(super) fn backward(gpu: &Gpu, x: &Tensor, dy: &Tensor, form: Gelu) -> Result<Tensor> {
    const OP: &str = "gelu_grad";
    let mut dx = Tensor::empty(x.device(), x.shape().clone())?;
    let (to, n, width) = (dx.written(OP, gpu)?, x.elements(), x.shape().last());
    let (x, dy) = (x.operand(OP, gpu)?, dy.operand(OP, gpu)?);
    let none = Pointer::NULL;
    gpu.launch(&cuda::backward(
        form,
        DType::F32,
        x.at,
        none,
        dy.at,
        to,
        n,
        width.max(1),
    ))?;
    Ok(dx)
}

/// The same, written over dL/dy.
pub(super) fn backward_over(gpu: &Gpu, x: &Tensor, dy: &mut Tensor, form: Gelu) -> Result<()> {
    const OP: &str = "gelu_with_grad";
    let (n, width) = (x.elements(), x.shape().last());
    let at = dy.written(OP, gpu)?;
    let x = x.operand(OP, gpu)?;
    gpu.launch(&cuda::backward(
        form,
        DType::F32,
        x.at,
        Pointer::NULL,
        at,
        at,
        n,
        width.max(1),
    ))
}
