//! Normalization of channels on a GPU: launches.

use super::kernels::{self, Gradients, Norm};
use super::norm::ChannelNorm;
use super::plan::Extents;
use crate::cuda::Gpu;
use crate::cuda::entry::Pointer;
use crate::{DType, Result, Tensor};

const SINGLE: DType = DType::F32;

/// Fills `stats`.
pub(super) fn statistics(
    gpu: &Gpu,
    x: &Tensor,
    extents: Extents,
    stats: &mut Tensor,
) -> Result<()> {
    const OP: &str = "channel_statistics";
    let stored = x.dtype();
    let partials = gpu.alloc(4 * kernels::partials(extents))?;
    let stats = stats.written(OP, gpu, SINGLE)?;
    let x = x.operand(OP, gpu, stored)?;
    for launch in kernels::statistics(stored, x.at, partials.at(0), stats, extents) {
        // SAFETY: all live on this handle; x has as many groups, rows and channels, there are partial sums for
        // each run of rows, and two statistics for each channel of each group.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}

/// Fills `y`.
pub(super) fn normalize(
    gpu: &Gpu,
    x: &Tensor,
    norm: &ChannelNorm<'_>,
    extents: Extents,
    y: &mut Tensor,
) -> Result<()> {
    const OP: &str = "channel_norm";
    let stored = x.dtype();
    let y = y.written(OP, gpu, stored)?;
    let x = x.operand(OP, gpu, stored)?;
    with_norm(OP, gpu, norm, stored, |norm| {
        // SAFETY: all live on this handle, and their shapes were compared with the extents.
        unsafe { gpu.launch(&kernels::normalize(stored, x.at, norm, y, extents)) }
    })
}

/// Fills `dx` and `sums`.
pub(super) fn gradients(
    gpu: &Gpu,
    [x, dy]: [&Tensor; 2],
    norm: &ChannelNorm<'_>,
    extents: Extents,
    dx: &mut Tensor,
    sums: &mut Tensor,
) -> Result<()> {
    const OP: &str = "channel_norm_grad";
    let stored = x.dtype();
    let partials = gpu.alloc(4 * kernels::partials(extents))?;
    let (dx, sums) = (dx.written(OP, gpu, stored)?, sums.written(OP, gpu, SINGLE)?);
    let (x, dy) = (x.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    let operands = || Gradients {
        x: x.at,
        dy: dy.at,
        partials: partials.at(0),
        sums,
        dx,
    };
    with_norm(OP, gpu, norm, stored, |norm| {
        for launch in kernels::gradients(stored, operands(), norm, extents) {
            // SAFETY: all live on this handle, their shapes were compared with the extents, and there are
            // partial sums for each run of rows.
            unsafe { gpu.launch(&launch) }?;
        }
        Ok(())
    })
}

/// Runs `launch` with the operands of a normalization.
fn with_norm(
    op: &'static str,
    gpu: &Gpu,
    norm: &ChannelNorm<'_>,
    stored: DType,
    launch: impl FnOnce(Norm) -> Result<()>,
) -> Result<()> {
    let mean = norm.mean.operand(op, gpu, SINGLE)?;
    let variance = norm.variance.operand(op, gpu, SINGLE)?;
    let params = match norm.gain_and_bias {
        Some([gain, bias]) => Some((
            gain.operand(op, gpu, stored)?,
            bias.operand(op, gpu, stored)?,
        )),
        None => None,
    };
    let (gain, bias) = match &params {
        Some((gain, bias)) => (gain.at, bias.at),
        None => (Pointer::NULL, Pointer::NULL),
    };
    launch(Norm {
        mean: mean.at,
        variance: variance.at,
        gain,
        bias,
        eps: norm.eps,
    })
}

/// Merges `part` into mean and variance.
pub(super) fn merge(
    gpu: &Gpu,
    mean: &mut Tensor,
    variance: &mut Tensor,
    part: &Tensor,
    weights: [f32; 2],
) -> Result<()> {
    const OP: &str = "merge_channel_statistics";
    let channels = mean.elements();
    let mean = mean.written(OP, gpu, SINGLE)?;
    let variance = variance.written(OP, gpu, SINGLE)?;
    let part = part.operand(OP, gpu, SINGLE)?;
    // SAFETY: all live on this handle; mean and variance have as many channels, and `part` twice as many.
    unsafe { gpu.launch(&kernels::merge(mean, variance, part.at, channels, weights)) }
}

/// Moves `value` towards `new`.
pub(super) fn moving_average(
    gpu: &Gpu,
    value: &mut Tensor,
    new: &Tensor,
    momentum: f32,
    scale: f32,
) -> Result<()> {
    const OP: &str = "moving_average";
    let n = value.elements();
    let value = value.written(OP, gpu, SINGLE)?;
    let new = new.operand(OP, gpu, SINGLE)?;
    // SAFETY: both live on this handle and have n elements: their shapes were compared.
    unsafe { gpu.launch(&kernels::average(value, new.at, n, momentum, scale)) }
}
