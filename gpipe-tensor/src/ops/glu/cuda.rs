//! Gated linear units on a GPU: launches.

use super::gate::Gate;
use super::kernels;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// f(gate)·up.
pub(super) fn forward(gpu: &Gpu, function: Gate, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    const OP: &str = "glu";
    let (stored, n) = (gate.dtype(), gate.elements());
    let mut y = gate.empty_like(gate.shape().clone())?;
    let to = y.written(OP, gpu, stored)?;
    let (gate, up) = (gate.operand(OP, gpu, stored)?, up.operand(OP, gpu, stored)?);
    // SAFETY: all live on this handle and have n elements: their shapes were compared.
    unsafe { gpu.launch(&kernels::forward(function, stored, gate.at, up.at, to, n)) }?;
    Ok(y)
}

/// Overwrites all three.
pub(super) fn backward(
    gpu: &Gpu,
    function: Gate,
    gate: &mut Tensor,
    up: &mut Tensor,
    dy: &mut Tensor,
) -> Result<()> {
    const OP: &str = "glu_with_grad";
    let (stored, n) = (gate.dtype(), gate.elements());
    let gate = gate.written(OP, gpu, stored)?;
    let up = up.written(OP, gpu, stored)?;
    let dy = dy.written(OP, gpu, stored)?;
    // SAFETY: all live on this handle, have n elements, and nothing else holds them.
    unsafe { gpu.launch(&kernels::backward(function, stored, gate, up, dy, n)) }
}
