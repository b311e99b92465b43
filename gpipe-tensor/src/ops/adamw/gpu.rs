//! AdamW on a GPU.

use super::{Factors, cuda};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

/// One step.
pub(super) fn adamw(
    gpu: &Gpu,
    value: &mut Tensor,
    grad: &Tensor,
    [first, second]: [&mut Tensor; 2],
    factors: &Factors,
) -> Result<()> {
    const OP: &str = "adamw";
    let n = value.elements();
    let value = value.written(OP, gpu)?;
    let states = [first.written(OP, gpu)?, second.written(OP, gpu)?];
    let grad = grad.operand(OP, gpu)?;
    let none = Pointer::NULL;
    gpu.launch(&cuda::adamw(
        DType::F32,
        value,
        none,
        grad.at,
        states,
        n,
        factors,
    ))
}
