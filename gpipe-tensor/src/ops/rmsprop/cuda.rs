//! RMSProp on a GPU: launches.

use super::kernels;
use super::settings::RmsProp;
use super::update::RmsPropUpdate;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// One step.
pub(super) fn rmsprop(gpu: &Gpu, update: RmsPropUpdate<'_>, settings: &RmsProp) -> Result<()> {
    const OP: &str = "rmsprop";
    let RmsPropUpdate {
        value,
        copy,
        grad,
        square,
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
    let square = square.written(OP, gpu, single)?;
    let grad = grad.operand(OP, gpu, single)?;
    let at = [value, copy, grad.at, square, velocity];
    // SAFETY: all live on this handle and have n elements: their shapes were compared; what there is
    // none of is not accessed.
    unsafe { gpu.launch(&kernels::rmsprop(stored, at, n, grad_scale, settings)) }
}
