//! AdamW on a GPU.

use super::{Factors, cuda};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// One step.
pub(super) fn adamw(
    gpu: &Gpu,
    value: &mut Tensor,
    copy: Option<&mut Tensor>,
    grad: &Tensor,
    [first, second]: [&mut Tensor; 2],
    factors: &Factors,
) -> Result<()> {
    const OP: &str = "adamw";
    let (n, single) = (value.elements(), DType::F32);
    let value = value.written(OP, gpu, single)?;
    let (stored, copy) = match copy {
        Some(copy) => (copy.dtype(), copy.written(OP, gpu, copy.dtype())?),
        None => (single, Pointer::NULL),
    };
    let states = [
        first.written(OP, gpu, single)?,
        second.written(OP, gpu, single)?,
    ];
    let grad = grad.operand(OP, gpu, single)?;
    gpu.launch(&cuda::adamw(
        stored, value, copy, grad.at, states, n, factors,
    ))
}
