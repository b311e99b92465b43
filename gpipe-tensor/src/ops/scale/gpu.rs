//! Multiplication by a number on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// a · by.
pub(super) fn scale(gpu: &Gpu, a: &Tensor, by: f32) -> Result<Tensor> {
    const OP: &str = "scale";
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let to = out.written(OP, gpu)?;
    let x = a.operand(OP, gpu)?;
    gpu.launch(&cuda::scale(DType::F32, x.at, to, a.elements(), by))?;
    Ok(out)
}

/// a *= by.
pub(super) fn scale_assign(gpu: &Gpu, a: &mut Tensor, by: f32) -> Result<()> {
    let n = a.elements();
    let at = a.written("scale_assign", gpu)?;
    gpu.launch(&cuda::scale(DType::F32, at, at, n, by))
}
