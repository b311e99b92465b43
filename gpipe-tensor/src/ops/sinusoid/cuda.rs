//! Sinusoidal positions on a GPU: the launch.

use super::kernels;
use crate::cuda::Gpu;
use crate::{DType, Result, Tensor};

/// Scales y (B, T, d) with rows of `len` positions and `width` elements, and adds the positions, which are
/// `counted` from a number on, with this ratio of a frequency and of the one before it.
pub(super) fn add(
    gpu: &Gpu,
    y: &mut Tensor,
    segments: &Tensor,
    [len, width]: [usize; 2],
    counted: (u64, f64),
    scale: f32,
) -> Result<()> {
    const OP: &str = "scale_and_add_positions";
    let (stored, rows) = (y.dtype(), segments.elements());
    let at = y.written(OP, gpu, stored)?;
    let segments = segments.operand(OP, gpu, DType::U32)?;
    let launch = kernels::positions(
        stored,
        [at, segments.at],
        [rows, len, width],
        counted,
        scale,
    );
    // SAFETY: both live on this handle; there is a segment for each row of `width` elements, and the rows are
    // those of whole samples of `len`.
    unsafe { gpu.launch(&launch) }
}
