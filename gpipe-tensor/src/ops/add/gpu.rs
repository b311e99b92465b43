//! Sums of tensors on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// a + b, where b is repeated.
pub(super) fn add(gpu: &Gpu, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "add";
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let (n, period) = (a.elements(), b.elements());
    let to = out.written(OP, gpu)?;
    let (a, b) = (a.operand(OP, gpu)?, b.operand(OP, gpu)?);
    gpu.launch(&cuda::add(DType::F32, a.at, b.at, to, n, period))?;
    Ok(out)
}

/// a += b, where b is repeated.
pub(super) fn add_assign(gpu: &Gpu, a: &mut Tensor, b: &Tensor) -> Result<()> {
    const OP: &str = "add_assign";
    let (n, period) = (a.elements(), b.elements());
    let at = a.written(OP, gpu)?;
    let b = b.operand(OP, gpu)?;
    gpu.launch(&cuda::add(DType::F32, at, b.at, at, n, period))
}

/// Fills `out` with a row, again and again.
pub(in crate::ops) fn repeat(gpu: &Gpu, row: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "repeat";
    let (n, period) = (out.elements(), row.elements());
    let to = out.written(OP, gpu)?;
    let row = row.operand(OP, gpu)?;
    gpu.launch(&cuda::repeat(DType::F32, row.at, to, n, period))
}
