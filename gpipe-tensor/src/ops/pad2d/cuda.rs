//! Padding on a GPU: launches.

use super::kernels;
use crate::cuda::Gpu;
use crate::ops::window::Images;
use crate::{Result, Tensor};

/// Fills `y`.
pub(super) fn pad(
    gpu: &Gpu,
    x: &Tensor,
    images: Images,
    offset: [isize; 2],
    size: [usize; 2],
    y: &mut Tensor,
) -> Result<()> {
    const OP: &str = "pad2d";
    let stored = x.dtype();
    let (y, x) = (y.written(OP, gpu, stored)?, x.operand(OP, gpu, stored)?);
    // SAFETY: both live on this handle; x holds these images, and y as many of the other size.
    unsafe { gpu.launch(&kernels::pad(stored, x.at, y, images, offset, size)) }
}
