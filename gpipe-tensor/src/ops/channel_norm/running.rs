//! Statistics of a mini-batch from those of its micro-batches, and their moving averages.

#[cfg(feature = "cuda")]
use super::cuda;
use crate::ops::check::check_same_shape;
use crate::{Error, Result, Tensor};

/// Merges the statistics (2, channels) of `added` rows into the mean and the biased variance of `rows`
/// rows: with Δ the distance of the means and s = added/(rows + added), the mean moves by s·Δ, and the variance
/// is (1 − s)·σ² + s·σ²_added + s·(1 − s)·Δ² (Chan, Golub and LeVeque, 1979).
///
/// # Errors
/// [`Error::Shape`] unless all are of as many channels; [`Error::Shared`] if something else holds the
/// mean or the variance.
pub fn merge_channel_statistics(
    [mean, variance]: [&mut Tensor; 2],
    rows: u64,
    part: &Tensor,
    added: u64,
) -> Result<()> {
    const OP: &str = "merge_channel_statistics";
    check_same_shape(OP, mean, variance)?;
    let channels = mean.elements();
    if part.elements() != 2 * channels {
        let expected = format!("means and variances of {channels} channels");
        return Err(Error::shape(OP, expected, part.shape()));
    }
    let share = added as f64 / rows.saturating_add(added).max(1) as f64;
    let weights = [share as f32, (share * (1.0 - share)) as f32];
    #[cfg(feature = "cuda")]
    if let Some(gpu) = part.gpu().cloned() {
        return cuda::merge(&gpu, mean, variance, part, weights);
    }
    let (means, variances) = part.f32s()?.split_at(channels);
    let [share, spread] = weights;
    let into = mean.f32s_mut()?.iter_mut().zip(variance.f32s_mut()?);
    for ((mean, variance), (new_mean, new_variance)) in into.zip(means.iter().zip(variances)) {
        let distance = new_mean - *mean;
        let between = spread * distance * distance;
        *variance = share.mul_add(new_variance - *variance, *variance) + between;
        *mean = share.mul_add(distance, *mean);
    }
    Ok(())
}

/// Moves each element of `value` towards that of `new`, times `scale`: value += momentum · (scale · new −
/// value).
///
/// # Errors
/// [`Error::Shape`] unless the shapes are the same; [`Error::Shared`] if something else holds `value`.
pub fn moving_average(value: &mut Tensor, new: &Tensor, momentum: f32, scale: f32) -> Result<()> {
    check_same_shape("moving_average", value, new)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = new.gpu().cloned() {
        return cuda::moving_average(&gpu, value, new, momentum, scale);
    }
    for (value, new) in value.f32s_mut()?.iter_mut().zip(new.f32s()?) {
        *value = momentum.mul_add(scale.mul_add(*new, -*value), *value);
    }
    Ok(())
}
