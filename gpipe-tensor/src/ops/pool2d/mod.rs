//! Pools: the largest value, or the mean, of each window of images (samples, height, width, channels).
//!
//! Pixels outside of the image belong to no window: a maximum is never a padding's, and a mean is over the pixels
//! that are there.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use super::window::Window;
use crate::parallel::{CHUNK, for_each};
use crate::{Result, Shape, Tensor};
use plan::Plan;

/// The largest value of each window.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) or [`Error::Argument`](crate::Error::Argument) if `x` is no batch of
/// images or the window does not fit; errors of allocation.
pub fn max_pool2d(x: &Tensor, window: &Window) -> Result<Tensor> {
    let plan = Plan::new("max_pool2d", x.shape(), window)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::max(gpu, &plan, x);
    }
    outputs(&plan, x, cpu::max)
}

/// The gradient of [`max_pool2d`] with respect to x: each window passes its own to its largest value, to the first
/// in scan order of several.
///
/// # Errors
/// As [`max_pool2d`]; [`Error::Shape`](crate::Error::Shape) unless `dy` has the shape of the result.
pub fn max_pool2d_grad(x: &Tensor, dy: &Tensor, window: &Window) -> Result<Tensor> {
    const OP: &str = "max_pool2d_grad";
    let plan = Plan::new(OP, x.shape(), window)?;
    plan.check_result(OP, dy.shape())?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::max_grad(gpu, &plan, x, dy);
    }
    let mut dx = Tensor::zeros(x.device(), x.shape().clone())?;
    if plan.image() == 0 || plan.result_image() == 0 {
        return Ok(dx);
    }
    // A band holds whole strides, so that few windows lie in two.
    let line = plan.input.size[1] * plan.input.channels;
    let stride = plan.window.stride[0].min(plan.input.size[0]);
    let band = (CHUNK / line.max(1)).next_multiple_of(stride).max(stride);
    let images = x.f32s()?.chunks(plan.image());
    let images = images.zip(dy.f32s()?.chunks(plan.result_image()));
    let items = images
        .zip(dx.f32s_mut()?.chunks_mut(plan.image()))
        .flat_map(|((x, dy), dx)| {
            let bands = dx.chunks_mut(band * line).enumerate();
            bands.map(move |(i, dx)| (x, dy, i * band, dx))
        });
    for_each(x.device(), items, |(x, dy, first, dx)| {
        let lines = first..first + dx.len() / line;
        cpu::max_grad(&plan, x, dy, lines, dx);
    });
    Ok(dx)
}

/// The mean of each window.
///
/// # Errors
/// As [`max_pool2d`].
pub fn avg_pool2d(x: &Tensor, window: &Window) -> Result<Tensor> {
    let plan = Plan::new("avg_pool2d", x.shape(), window)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::average(gpu, &plan, x);
    }
    outputs(&plan, x, cpu::average)
}

/// The gradient of [`avg_pool2d`] with respect to x, whose shape is `input`.
///
/// # Errors
/// As [`max_pool2d_grad`].
pub fn avg_pool2d_grad(dy: &Tensor, input: &Shape, window: &Window) -> Result<Tensor> {
    const OP: &str = "avg_pool2d_grad";
    let plan = Plan::new(OP, input, window)?;
    plan.check_result(OP, dy.shape())?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dy.gpu() {
        return cuda::average_grad(gpu, &plan, dy, input);
    }
    let mut dx = Tensor::zeros(dy.device(), input.clone())?;
    if plan.image() == 0 || plan.result_image() == 0 {
        return Ok(dx);
    }
    let line = plan.input.size[1] * plan.input.channels;
    let images = dx.f32s_mut()?.chunks_mut(plan.image());
    let items = images
        .zip(dy.f32s()?.chunks(plan.result_image()))
        .flat_map(|(dx, dy)| {
            let lines = dx.chunks_mut(line).enumerate();
            lines.map(move |(line, dx)| (dy, line, dx))
        });
    for_each(dy.device(), items, |(dy, line, dx)| {
        cpu::average_grad(&plan, dy, line, dx);
    });
    Ok(dx)
}

/// The result of a pool, line by line.
fn outputs(plan: &Plan, x: &Tensor, pool: fn(&Plan, &[f32], usize, &mut [f32])) -> Result<Tensor> {
    let mut y = Tensor::empty(x.device(), plan.result())?;
    let (image, result) = (plan.image(), plan.result_image());
    if image == 0 || result == 0 {
        return Ok(y);
    }
    let line = plan.output[1] * plan.input.channels;
    let images = y
        .f32s_mut()?
        .chunks_mut(result)
        .zip(x.f32s()?.chunks(image));
    let items = images.flat_map(|(y, x)| {
        let lines = y.chunks_mut(line).enumerate();
        lines.map(move |(line, y)| (x, line, y))
    });
    for_each(x.device(), items, |(x, line, y)| pool(plan, x, line, y));
    Ok(y)
}
