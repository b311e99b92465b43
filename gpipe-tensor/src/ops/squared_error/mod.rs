//! The squared error of predictions.

mod cpu;

use super::chunks::own;
use super::{check_divisor, check_same_shape};
use crate::parallel::{CHUNK, each};
use crate::{Result, Tensor};

/// Σ (y − target)² / divisor, and its gradient with respect to y, 2(y − target)/divisor, which is
/// written over `y` if nothing else holds it. With a divisor of 0 both are 0.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same;
/// [`Error::Argument`](crate::Error::Argument) for a divisor that is negative or no number; errors
/// of allocation.
pub fn squared_error(y: Tensor, target: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    const OP: &str = "squared_error";
    check_same_shape(OP, &y, target)?;
    check_divisor(OP, divisor)?;
    let mut dy = own(y)?;
    if divisor == 0.0 {
        dy.f32s_mut()?.fill(0.0);
        return Ok((0.0, dy));
    }
    let slope = (2.0 / divisor) as f32;
    let (device, target) = (dy.device().clone(), target.f32s()?);
    let mut sums = vec![0.0; target.len().div_ceil(CHUNK)];
    let chunks = dy.f32s_mut()?.chunks_mut(CHUNK).zip(target.chunks(CHUNK));
    each(&device, chunks.zip(&mut sums), |((dy, target), sum)| {
        *sum = cpu::squared_error(dy, target, slope);
    });
    Ok((sums.iter().sum::<f64>() / divisor, dy))
}
