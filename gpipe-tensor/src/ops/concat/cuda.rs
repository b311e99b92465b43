//! Copies of columns on a GPU: launches.

use super::kernels;
use super::plan::Columns;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

/// Copies columns of x into y.
pub(super) fn copy(
    op: &'static str,
    gpu: &Gpu,
    x: &Tensor,
    y: &mut Tensor,
    columns: Columns,
) -> Result<()> {
    let stored = x.dtype();
    let (y, x) = (y.written(op, gpu, stored)?, x.operand(op, gpu, stored)?);
    // SAFETY: both live on this handle and have these rows, of these widths.
    unsafe { gpu.launch(&kernels::copy(stored, x.at, y, columns)) }
}
