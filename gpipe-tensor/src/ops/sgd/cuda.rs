//! Stochastic gradient descent on a GPU: launches.

use super::kernels;
use super::settings::Sgd;
use super::update::SgdUpdate;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// One step.
pub(super) fn sgd(gpu: &Gpu, update: SgdUpdate<'_>, settings: &Sgd) -> Result<()> {
    const OP: &str = "sgd";
    let SgdUpdate {
        value,
        copy,
        grad,
        velocity,
        grad_scale,
    } = update;
    let n = value.elements();
    let single = DType::F32;
    let value = value.written(OP, gpu, single)?;
    let stored = copy.as_ref().map_or(single, |copy| copy.dtype());
    let written = |tensor: Option<&mut Tensor>, dtype| match tensor {
        Some(tensor) => tensor.written(OP, gpu, dtype),
        None => Ok(Pointer::NULL),
    };
    let (copy, velocity) = (written(copy, stored)?, written(velocity, single)?);
    let grad = grad.operand(OP, gpu, single)?;
    let at = [value, copy, grad.at, velocity];
    // SAFETY: all live on this handle and have n elements: their shapes were compared; what there is
    // none of is not accessed.
    unsafe { gpu.launch(&kernels::sgd(stored, at, n, grad_scale, settings)) }
}
