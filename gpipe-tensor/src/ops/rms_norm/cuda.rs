//! Root mean square normalization on a GPU: launches.

use super::kernels::{self, Gradient};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::ops::sum::kernels::Spans;
use crate::{DType, Result, Tensor};

/// Fills `y` and `inverse`.
pub(super) fn forward(
    gpu: &Gpu,
    [x, gain]: [&Tensor; 2],
    [base, eps]: [f32; 2],
    y: &mut Tensor,
    inverse: &mut Tensor,
) -> Result<()> {
    const OP: &str = "rms_norm";
    let (rows, width) = x.shape().matrix()?;
    let stored = x.dtype();
    let (y, inverse) = (
        y.written(OP, gpu, stored)?,
        inverse.written(OP, gpu, DType::F32)?,
    );
    let (x, gain) = (x.operand(OP, gpu, stored)?, gain.operand(OP, gpu, stored)?);
    let operands = [x.at, gain.at];
    // SAFETY: all live on this handle; x and y have `rows` rows of `width` elements, the gain one, and
    // there is one factor a row.
    unsafe {
        gpu.launch(&kernels::forward(
            stored,
            operands,
            y,
            inverse,
            [rows, width],
            [base, eps],
        ))
    }
}

/// Fills `dx`, `onto` added, and `dgain`.
pub(super) fn backward(
    gpu: &Gpu,
    [x, inverse, gain, dy]: [&Tensor; 4],
    base: f32,
    onto: Option<&Tensor>,
    dx: &mut Tensor,
    dgain: &mut Tensor,
) -> Result<()> {
    const OP: &str = "rms_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    let (stored, single) = (x.dtype(), DType::F32);
    let partials = gpu.alloc(4 * width * Spans::new(stored, rows, width).count())?;
    let (dx, dgain) = (
        dx.written(OP, gpu, stored)?,
        dgain.written(OP, gpu, single)?,
    );
    let (x, inverse) = (
        x.operand(OP, gpu, stored)?,
        inverse.operand(OP, gpu, single)?,
    );
    let (gain, dy) = (gain.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    let onto = onto.map(|onto| onto.operand(OP, gpu, stored)).transpose()?;
    let at = Gradient {
        x: x.at,
        inverse: inverse.at,
        gain: gain.at,
        base,
        dy: dy.at,
        onto: onto.as_ref().map_or(Pointer::NULL, |onto| onto.at),
        dx,
        partials: partials.at(0),
        dgain,
    };
    for launch in kernels::backward(stored, at, rows, width) {
        // SAFETY: as above; the shapes of the gradients were compared with those of the operands, and
        // there are partial sums for each span of rows.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}
