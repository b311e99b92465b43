//! Layer normalization on a GPU: launches.

use super::kernels::{self, InputGrad, ParamsGrad};
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::ops::sum::kernels::Spans;
use crate::{DType, Result, Tensor};

/// Fills `y` and `stats`.
pub(super) fn forward(
    gpu: &Gpu,
    [x, gain, bias]: [&Tensor; 3],
    eps: f32,
    y: &mut Tensor,
    stats: &mut Tensor,
) -> Result<()> {
    const OP: &str = "layer_norm";
    let (rows, width) = x.shape().matrix()?;
    let (stored, single) = (x.dtype(), DType::F32);
    let (y, stats) = (y.written(OP, gpu, stored)?, stats.written(OP, gpu, single)?);
    let (x, gain, bias) = (
        x.operand(OP, gpu, stored)?,
        gain.operand(OP, gpu, stored)?,
        bias.operand(OP, gpu, stored)?,
    );
    let operands = [x.at, gain.at, bias.at];
    // SAFETY: all live on this handle; x and y have `rows` rows of `width` elements, gain and bias one,
    // and there are two statistics a row.
    unsafe {
        gpu.launch(&kernels::forward(
            stored, operands, y, stats, rows, width, eps,
        ))
    }
}

/// Fills `dx`, `onto` added, and `dparams`.
pub(super) fn backward(
    gpu: &Gpu,
    [x, stats, gain, dy]: [&Tensor; 4],
    onto: Option<&Tensor>,
    dx: &mut Tensor,
    dparams: &mut Tensor,
) -> Result<()> {
    const OP: &str = "layer_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    let (stored, single) = (x.dtype(), DType::F32);
    let (dx, dparams) = (
        dx.written(OP, gpu, stored)?,
        dparams.written(OP, gpu, single)?,
    );
    let (x, stats) = (x.operand(OP, gpu, stored)?, stats.operand(OP, gpu, single)?);
    let (gain, dy) = (gain.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    let onto = onto.map(|onto| onto.operand(OP, gpu, stored)).transpose()?;
    // SAFETY: as above; the shapes of the gradients were compared with those of the operands.
    unsafe {
        gpu.launch(&kernels::input_grad(
            stored,
            InputGrad {
                x: x.at,
                stats: stats.at,
                gain: gain.at,
                dy: dy.at,
                onto: onto.as_ref().map_or(Pointer::NULL, |onto| onto.at),
                dx,
            },
            rows,
            width,
        ))
    }?;
    let partials = gpu.alloc(4 * 2 * width * Spans::new(stored, rows, width).count())?;
    let operands = ParamsGrad {
        x: x.at,
        stats: stats.at,
        dy: dy.at,
        partials: partials.at(0),
        dparams,
    };
    for launch in kernels::params_grad(stored, operands, rows, width) {
        // SAFETY: as above; there are partial sums for each span of rows.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}
