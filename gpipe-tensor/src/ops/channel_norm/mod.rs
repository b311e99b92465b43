//! Normalization of channels: batch normalization (Ioffe and Szegedy, arXiv:1502.03167) and instance
//! normalization (Ulyanov, Vedaldi and Lempitsky, arXiv:1607.08022).
//!
//! Tensors are (rows, channels), the channels innermost: rows are the pixels of all images. They
//! are normalized in equal groups of rows: one for a batch, one for each image for instances.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod norm;
pub(crate) mod plan;
mod running;

pub use norm::ChannelNorm;
pub use running::{merge_channel_statistics, moving_average};

use super::check::check_same_shape;
use super::scratch::Scratch;
use crate::parallel::for_each;
use crate::{Result, Tensor};
use plan::Extents;

/// The mean and the biased variance of each channel of `x` in each of `groups` equal groups of rows:
/// one tensor (2, groups, channels) of single precision.
///
/// Each block of rows has its mean and its sum of squared distances from it; blocks are joined in
/// double precision. No difference of large squares is taken, which would cancel.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the rows make equal groups; errors of allocation.
pub fn channel_statistics(x: &Tensor, groups: usize) -> Result<Tensor> {
    const OP: &str = "channel_statistics";
    let extents = Extents::of(OP, x.shape(), groups)?;
    let Extents { rows, channels, .. } = extents;
    let mut statistics = Tensor::zeros(x.device(), [2, groups, channels])?;
    if x.elements() == 0 {
        return Ok(statistics);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        cuda::statistics(gpu, x, extents, &mut statistics)?;
        return Ok(statistics);
    }
    let mut blocks = Scratch::take(x.device(), 2 * channels * extents.blocks())?;
    let items = extents.cut(x.f32s()?);
    let items = items.zip(blocks.chunks_mut(2 * channels));
    for_each(x.device(), items, |((_, x), out)| {
        cpu::statistics(x, channels, out);
    });
    let (means, variances) = statistics.f32s_mut()?.split_at_mut(groups * channels);
    let out = means
        .chunks_mut(channels)
        .zip(variances.chunks_mut(channels));
    let blocks = blocks.chunks(2 * channels * extents.blocks_of_group());
    for ((mean, variance), blocks) in out.zip(blocks) {
        let first_rows = (0..rows).step_by(extents.block());
        let rows = first_rows.map(|first| extents.block().min(rows - first));
        cpu::join_statistics(rows.zip(blocks.chunks(2 * channels)), mean, variance);
    }
    Ok(statistics)
}

/// y = (x − μ)/σ · gain + bias, where σ² is the variance plus `eps`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the statistics are of as many channels, and of equal groups of rows, and gain
/// and bias have an element for each channel; errors of allocation.
pub fn channel_norm(x: &Tensor, norm: &ChannelNorm<'_>) -> Result<Tensor> {
    const OP: &str = "channel_norm";
    let extents = norm.extents(OP, x)?;
    let mut y = x.empty_like(x.shape().clone())?;
    if x.elements() == 0 {
        return Ok(y);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        cuda::normalize(gpu, x, norm, extents, &mut y)?;
        return Ok(y);
    }
    let channels = extents.channels;
    let mut scale = Scratch::take(x.device(), norm.mean.elements())?;
    norm.inverse_deviations(&mut scale)?;
    norm.times_gain(&mut scale)?;
    let zeros = vec![0.0; channels];
    let bias = match norm.gain_and_bias {
        Some([_, bias]) => bias.f32s()?,
        None => &zeros,
    };
    let mean = norm.mean.f32s()?;
    let items = extents.cut(x.f32s()?).zip(extents.cut_mut(y.f32s_mut()?));
    for_each(x.device(), items, |((group, x), y)| {
        let at = group * channels..(group + 1) * channels;
        cpu::normalize(x, [&mean[at.clone()], &scale[at], bias], y);
    });
    Ok(y)
}

/// The gradients of [`channel_norm`] by the statistics of `x` itself
/// ([`channel_statistics`]): with respect to x, and as one tensor (2, groups, channels) of single precision
/// with respect to gain and bias, for each group.
///
/// With x̂ = (x − μ)/σ, dL/dgain = Σ dL/dy · x̂ and dL/dbias = Σ dL/dy over the rows of a group. μ and σ
/// depend on every row of the group, hence dL/dx = gain/σ · (dL/dy − mean(dL/dy) − x̂ · mean(dL/dy · x̂)).
///
/// # Errors
/// As [`channel_norm`], and unless `dy` has the shape of `x`.
pub fn channel_norm_grad(
    x: &Tensor,
    dy: &Tensor,
    norm: &ChannelNorm<'_>,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "channel_norm_grad";
    let extents = norm.extents(OP, x)?;
    check_same_shape(OP, x, dy)?;
    let Extents {
        groups,
        rows,
        channels,
    } = extents;
    let mut dx = x.empty_like(x.shape().clone())?;
    let mut sums = Tensor::zeros(x.device(), [2, groups, channels])?;
    if x.elements() == 0 {
        return Ok((dx, sums));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        cuda::gradients(gpu, [x, dy], norm, extents, &mut dx, &mut sums)?;
        return Ok((dx, sums));
    }
    let (mean, all) = (norm.mean.f32s()?, groups * channels);
    // 1/σ, then gain/σ.
    let mut scale = Scratch::take(x.device(), all)?;
    norm.inverse_deviations(&mut scale)?;
    let mut blocks = Scratch::take(x.device(), 2 * channels * extents.blocks())?;
    let items = extents.cut(x.f32s()?).zip(extents.cut(dy.f32s()?));
    let items = items.zip(blocks.chunks_mut(2 * channels));
    for_each(x.device(), items, |(((group, x), (_, dy)), out)| {
        cpu::sums(x, &mean[group * channels..][..channels], dy, out);
    });
    let (products, slopes) = sums.f32s_mut()?.split_at_mut(all);
    let out = products.chunks_mut(channels);
    let out = out
        .zip(slopes.chunks_mut(channels))
        .zip(scale.chunks(channels));
    let blocks = blocks.chunks(2 * channels * extents.blocks_of_group());
    for (((products, slopes), inverse), blocks) in out.zip(blocks) {
        cpu::join_sums(blocks.chunks(2 * channels), inverse, products, slopes);
    }
    let mut shares = Scratch::take(x.device(), 2 * all)?;
    let (slope, product) = shares.split_at_mut(all);
    let of_sums = products.iter().zip(&*slopes).zip(&*scale);
    for ((slope, product), ((products, slopes), inverse)) in
        slope.iter_mut().zip(product.iter_mut()).zip(of_sums)
    {
        *slope = slopes / rows as f32;
        *product = inverse * products / rows as f32;
    }
    norm.times_gain(&mut scale)?;
    let items = extents.cut(x.f32s()?).zip(extents.cut(dy.f32s()?));
    let items = items.zip(extents.cut_mut(dx.f32s_mut()?));
    for_each(x.device(), items, |(((group, x), (_, dy)), dx)| {
        let at = group * channels..(group + 1) * channels;
        let of_group = [mean, &scale, slope, product].map(|all| &all[at.clone()]);
        cpu::input_grad(x, dy, of_group, dx);
    });
    Ok((dx, sums))
}

#[cfg(test)]
mod tests;
