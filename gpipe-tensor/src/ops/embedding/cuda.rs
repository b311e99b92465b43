//! The embedding on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// Fills `out` with the rows that `ids` names.
pub(super) fn forward(gpu: &Gpu, ids: &Tensor, table: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "embedding";
    let (positions, width) = (ids.elements(), table.shape().last());
    let stored = table.dtype();
    let to = out.written(OP, gpu, stored)?;
    let ids = ids.operand(OP, gpu, DType::U32)?;
    let table = table.operand(OP, gpu, stored)?;
    // SAFETY: all live on this handle; the indices are less than the table's rows, and there is a row
    // of the result for each.
    unsafe {
        gpu.launch(&kernels::forward(
            stored, ids.at, table.at, to, positions, width,
        ))
    }
}

/// Adds the rows of `dy` to those of the table's gradient.
pub(super) fn backward(gpu: &Gpu, ids: &Tensor, dy: &Tensor, table: &mut Tensor) -> Result<()> {
    const OP: &str = "embedding_grad";
    let (positions, width) = (ids.elements(), table.shape().last());
    let stored = dy.dtype();
    let to = table.written(OP, gpu, DType::F32)?;
    let ids = ids.operand(OP, gpu, DType::U32)?;
    let dy = dy.operand(OP, gpu, stored)?;
    // SAFETY: as above: the shape of dy was compared with that of the result.
    unsafe {
        gpu.launch(&kernels::backward(
            stored, ids.at, dy.at, to, positions, width,
        ))
    }
}
