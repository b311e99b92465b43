//! Rows of a table on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// Fills `out` with the rows that `ids` names.
pub(super) fn forward(gpu: &Gpu, ids: &Tensor, table: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "embedding";
    let (positions, width) = (ids.elements(), table.shape().last());
    let to = out.written(OP, gpu)?;
    let (ids, table) = (ids.operand(OP, gpu)?, table.operand(OP, gpu)?);
    gpu.launch(&cuda::forward(
        DType::F32,
        ids.at,
        table.at,
        to,
        positions,
        width,
    ))
}

/// Adds the rows of `dy` to those of the table's gradient.
pub(super) fn backward(gpu: &Gpu, ids: &Tensor, dy: &Tensor, table: &mut Tensor) -> Result<()> {
    const OP: &str = "embedding_grad";
    let (positions, width) = (ids.elements(), table.shape().last());
    let to = table.written(OP, gpu)?;
    let (ids, dy) = (ids.operand(OP, gpu)?, dy.operand(OP, gpu)?);
    gpu.launch(&cuda::backward(
        DType::F32,
        ids.at,
        dy.at,
        to,
        positions,
        width,
    ))
}
