//! The embedding on a GPU: launches.

use super::kernels::{self, Backward};
use super::segments::{Bounds, segments};
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
    let width = table.shape().last();
    let bounds = Bounds::new(ids.elements(), table.shape().rows());
    let list = segments(ids.u32s()?, bounds);
    let list = gpu.upload(bytemuck::cast_slice(&list))?;
    let sums = gpu.alloc(4 * bounds.sums * width)?;
    let stored = dy.dtype();
    let to = table.written(OP, gpu, DType::F32)?;
    let dy = dy.operand(OP, gpu, stored)?;
    let at = Backward {
        list: list.at(0),
        dy: dy.at,
        table: to,
        sums: sums.at(0),
    };
    for launch in kernels::backward(stored, at, bounds, width) {
        // SAFETY: all live on this handle; the list and the room for sums are as large as its bounds say, its indices
        // are less than the table's rows, and dy has a row for each position.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}
