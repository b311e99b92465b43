//! Layer normalization on a GPU.

use super::cuda;
use crate::cuda::Gpu;
use crate::ops::sum::cuda::RUN;
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
    let (y, stats) = (y.written(OP, gpu)?, stats.written(OP, gpu)?);
    let (x, gain, bias) = (
        x.operand(OP, gpu)?,
        gain.operand(OP, gpu)?,
        bias.operand(OP, gpu)?,
    );
    let operands = [x.at, gain.at, bias.at];
    gpu.launch(&cuda::forward(
        DType::F32,
        operands,
        y,
        stats,
        rows,
        width,
        eps,
    ))
}

/// Fills `dx`, and adds to `dparams`.
pub(super) fn backward(
    gpu: &Gpu,
    [x, stats, gain, dy]: [&Tensor; 4],
    dx: &mut Tensor,
    dparams: &mut Tensor,
) -> Result<()> {
    const OP: &str = "layer_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    let (dx, dparams) = (dx.written(OP, gpu)?, dparams.written(OP, gpu)?);
    let (x, stats) = (x.operand(OP, gpu)?, stats.operand(OP, gpu)?);
    let (gain, dy) = (gain.operand(OP, gpu)?, dy.operand(OP, gpu)?);
    gpu.launch(&cuda::input_grad(
        DType::F32,
        x.at,
        stats.at,
        gain.at,
        dy.at,
        dx,
        rows,
        width,
    ))?;
    let partials = gpu.alloc(4 * 2 * width * rows.div_ceil(RUN))?;
    let to = partials.at(0);
    for launch in cuda::params_grad(DType::F32, x.at, stats.at, dy.at, to, dparams, rows, width) {
        gpu.launch(&launch)?;
    }
    Ok(())
}
