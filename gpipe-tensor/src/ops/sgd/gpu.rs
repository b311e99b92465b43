//! Stochastic gradient descent on a GPU.

use super::{Sgd, cuda};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// One step.
pub(super) fn sgd(
    gpu: &Gpu,
    value: &mut Tensor,
    grad: &Tensor,
    velocity: Option<&mut Tensor>,
    grad_scale: f32,
    o: &Sgd,
) -> Result<()> {
    const OP: &str = "sgd";
    let n = value.elements();
    let value = value.written(OP, gpu)?;
    let velocity = match velocity {
        Some(velocity) => velocity.written(OP, gpu)?,
        None => Pointer::NULL,
    };
    let grad = grad.operand(OP, gpu)?;
    let at = [value, Pointer::NULL, grad.at, velocity];
    gpu.launch(&cuda::sgd(DType::F32, at, n, grad_scale, o))
}
