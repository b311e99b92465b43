//! Layer normalization (Ba, Kiros and Hinton, arXiv:1607.06450) over the innermost extent.

mod cpu;

use super::check_same_shape;
use super::scratch::Scratch;
use crate::parallel::{each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Rows whose parameter gradients are summed before their sum joins the total.
const BLOCK: usize = 32;

/// y = (x − μ)/σ · gain + bias for each row of d elements, where σ² is the mean squared distance from
/// the mean μ, plus `eps`; and the statistics (rows, 2), μ and 1/σ of each row, for the gradient.
///
/// # Errors
/// [`Error::Shape`] unless gain and bias have d elements each; errors of allocation.
pub fn layer_norm(x: &Tensor, gain: &Tensor, bias: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
    const OP: &str = "layer_norm";
    let (rows, width) = x.shape().matrix()?;
    check_param(OP, gain, width)?;
    check_param(OP, bias, width)?;
    let mut y = Tensor::empty(x.device(), x.shape().clone())?;
    let mut stats = Tensor::zeros(x.device(), [rows, 2])?;
    if width > 0 {
        let (gain, bias) = (gain.f32s()?, bias.f32s()?);
        let rows = rows_per_chunk(width);
        let out = y.f32s_mut()?.chunks_mut(rows * width);
        let out = out.zip(stats.f32s_mut()?.chunks_mut(rows * 2));
        let chunks = x.f32s()?.chunks(rows * width).zip(out);
        each(x.device(), chunks, |(x, (y, stats))| {
            cpu::forward(x, gain, bias, eps, y, stats);
        });
    }
    Ok((y, stats))
}

/// The gradients with respect to x, and with respect to gain and bias as one tensor (2, d), summed
/// over all rows.
///
/// With x̂ = (x − μ)/σ and g = dL/dy · gain, dL/dgain = Σ dL/dy · x̂ and dL/dbias = Σ dL/dy over the
/// rows. μ and σ depend on every element of a row: ∂x̂ᵢ/∂xⱼ = (δᵢⱼ − 1/d − x̂ᵢx̂ⱼ/d)/σ, hence
/// dL/dxⱼ = (gⱼ − mean(g) − x̂ⱼ · mean(g · x̂))/σ.
///
/// # Errors
/// [`Error::Shape`] if the operands are not those of [`layer_norm`]; errors of allocation.
pub fn layer_norm_grad(
    x: &Tensor,
    stats: &Tensor,
    gain: &Tensor,
    dy: &Tensor,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "layer_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    check_param(OP, gain, width)?;
    check_same_shape(OP, x, dy)?;
    if stats.shape().dims() != [rows, 2] {
        return Err(Error::shape(
            OP,
            format!("statistics [{rows}, 2]"),
            stats.shape(),
        ));
    }
    let mut dx = Tensor::empty(x.device(), x.shape().clone())?;
    let mut dparams = Tensor::zeros(x.device(), [2, width])?;
    if width > 0 {
        let (stats, gain) = (stats.f32s()?, gain.f32s()?);
        let blocks = rows.div_ceil(BLOCK);
        let mut sums = Scratch::take(x.device(), blocks * 2 * width)?;
        let operands = x
            .f32s()?
            .chunks(BLOCK * width)
            .zip(dy.f32s()?.chunks(BLOCK * width));
        let operands = operands.zip(stats.chunks(BLOCK * 2));
        let out = dx.f32s_mut()?.chunks_mut(BLOCK * width);
        let out = out.zip(sums.chunks_mut(2 * width));
        each(
            x.device(),
            operands.zip(out),
            |(((x, dy), stats), (dx, sums))| {
                cpu::backward(x, stats, gain, dy, dx, sums);
            },
        );
        cpu::add_blocks(dparams.f32s_mut()?, &sums);
    }
    Ok((dx, dparams))
}

fn check_param(op: &'static str, param: &Tensor, width: usize) -> Result<()> {
    if param.elements() == width {
        return Ok(());
    }
    let expected = format!("a gain and a bias of {width} elements");
    Err(Error::shape(op, expected, param.shape()))
}
