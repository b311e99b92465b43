//! Two-dimensional convolution of images (samples, height, width, channels) with weights
//! (outputs, kernel height, kernel width, inputs a group).
//!
//! The result and both gradients are products of matrices: rows are gathered from the pixels under each
//! window (Chellapilla, Puri and Simard, 2006). A 1 × 1 window that moves by one pixel needs no gathering.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gather;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod plan;
#[cfg(test)]
mod tests;

use super::matmul::matrix::{Begin, Matrix};
use super::matmul::{Layout, matmul, matmul_accumulate};
use super::scratch::Scratch;
use super::window::Window;
use crate::{Error, Result, Shape, Tensor};
use cpu::{Phase, Product};
use gather::{Axis, Gather};
use plan::Plan;

/// The convolution of `x` (b, h, w, i) with `weight` (o, kh, kw, i/groups), plus `bias` (o) if there is one:
/// images (b, h', w', o) of the size that [`Window::output`] gives. The number of groups follows from the
/// shapes; group g maps its own channels of x to outputs g·o/groups and following.
///
/// `y[n, p, q, j] = bias[j] + Σ x[n, p·s + k − pad, q·s + l − pad, c] · weight[j, k, l, c]`; outside of the image
/// x is 0.
///
/// # Errors
/// [`Error::Shape`] or [`Error::Argument`] if operands or window do not fit; errors of allocation.
pub fn conv2d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    window: &Window,
) -> Result<Tensor> {
    const OP: &str = "conv2d";
    let plan = Plan::new(OP, x.shape(), weight.shape(), window)?;
    if let Some(bias) = bias.filter(|bias| bias.elements() != plan.channels()) {
        let expected = format!("a bias of {} elements", plan.channels());
        return Err(Error::shape(OP, expected, bias.shape()));
    }
    if plan.is_product() {
        return matmul(Layout::Nt, x, weight, bias);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::forward(gpu, &plan, x, weight, bias);
    }
    let mut y = Tensor::empty(x.device(), plan.result())?;
    let (source, weights) = (x.f32s()?, weight.f32s()?);
    let (bias, stride) = (bias.map(Tensor::f32s).transpose()?, plan.channels());
    let out = y.f32s_mut()?;
    if out.is_empty() {
        return Ok(y);
    }
    for group in 0..plan.groups {
        let first = group * plan.outputs;
        let weights = &weights[first * plan.window_width()..];
        let begin = match bias {
            Some(bias) => Begin::Row(&bias[first..][..plan.outputs]),
            None => Begin::Zero,
        };
        let product = Product {
            gather: plan.gather(group),
            source,
            matrix: Matrix::new(weights, plan.window_width()).transposed(),
            columns: plan.outputs,
        };
        product.run(x.device(), begin, &mut out[first..], stride)?;
    }
    Ok(y)
}

/// The gradient of [`conv2d`] with respect to x, whose shape is `input`.
///
/// A pixel gathers dL/dy from the windows that cover it. With strides, pixels of the same remainder are covered by
/// the same taps, so each remainder (phase) is a convolution of its own and no product with 0 is computed.
///
/// # Errors
/// As [`conv2d`]; [`Error::Shape`] unless `dy` has the shape of the result.
pub fn conv2d_input_grad(
    dy: &Tensor,
    weight: &Tensor,
    input: &Shape,
    window: &Window,
) -> Result<Tensor> {
    const OP: &str = "conv2d_input_grad";
    let plan = Plan::new(OP, input, weight.shape(), window)?;
    plan.check_result(OP, dy.shape())?;
    if plan.is_product() {
        return matmul(Layout::Nn, dy, weight, None);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dy.gpu() {
        return cuda::input_grad(gpu, &plan, dy, weight, input);
    }
    let mut dx = Tensor::empty(dy.device(), input.clone())?;
    let (source, weights) = (dy.f32s()?, weight.f32s()?);
    let out = dx.f32s_mut()?;
    if out.is_empty() {
        return Ok(dx);
    }
    let (device, channels) = (dy.device(), plan.input.channels);
    let taps = window.kernel[0] * window.kernel[1];
    let group_weights = weights.len() / plan.groups;
    let mut turned = Scratch::take(device, group_weights)?;
    for phase in phases(&plan) {
        let mut pixels = match window.stride {
            [1, 1] => None,
            _ => Some(Scratch::take(
                device,
                plan.input.samples * phase.pixels() * channels,
            )?),
        };
        let rows: &mut [f32] = pixels.as_deref_mut().unwrap_or(out);
        for group in 0..plan.groups {
            let weights = &weights[group * group_weights..][..group_weights];
            let sizes = (plan.outputs, taps, plan.inputs);
            cpu::taps_first(device, weights, sizes, &phase.taps, &mut turned);
            let product = Product {
                gather: Gather {
                    axes: phase.axes,
                    channels: plan.channels(),
                    taken: (group * plan.outputs, plan.outputs),
                },
                source,
                matrix: Matrix::new(&turned, plan.inputs),
                columns: plan.inputs,
            };
            let first = group * plan.inputs;
            product.run(device, Begin::Zero, &mut rows[first..], channels)?;
        }
        if let Some(pixels) = pixels {
            phase.places(&plan).scatter(device, &pixels, out);
        }
    }
    Ok(dx)
}

/// Adds the gradient of [`conv2d`] with respect to the weight to `dw`, which has the weight's shape.
///
/// # Errors
/// As [`conv2d`]; [`Error::Shared`] if something else holds `dw`.
pub fn conv2d_weight_grad(x: &Tensor, dy: &Tensor, dw: &mut Tensor, window: &Window) -> Result<()> {
    const OP: &str = "conv2d_weight_grad";
    let plan = Plan::new(OP, x.shape(), dw.shape(), window)?;
    plan.check_result(OP, dy.shape())?;
    if plan.is_product() {
        return matmul_accumulate(Layout::Tn, dy, x, dw);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dw.gpu().cloned() {
        return cuda::weight_grad(&gpu, &plan, x, dy, dw);
    }
    let (source, dys) = (x.f32s()?, dy.f32s()?);
    if dys.is_empty() {
        return Ok(());
    }
    let group_weights = plan.outputs * plan.window_width();
    for (group, dw) in dw.f32s_mut()?.chunks_mut(group_weights.max(1)).enumerate() {
        let first = group * plan.outputs;
        let dy = (&dys[first..], plan.channels(), plan.outputs);
        cpu::add_weight_grad(x.device(), &plan.gather(group), source, dy, dw)?;
    }
    Ok(())
}

/// The pixels of the input with the same remainders by the strides, and the taps that reach them.
struct InputPhase {
    phase: [usize; 2],
    axes: [Axis; 2],
    /// Taps in the order of the gather.
    taps: Vec<usize>,
}

impl InputPhase {
    /// Pixels of an image.
    fn pixels(&self) -> usize {
        self.axes[0].outputs * self.axes[1].outputs
    }

    /// Where they lie in the image.
    fn places(&self, plan: &Plan) -> Phase {
        Phase {
            phase: self.phase,
            stride: plan.window.stride,
            phase_size: self.axes.map(|axis| axis.outputs),
            size: plan.input.size,
            channels: plan.input.channels,
        }
    }
}

/// All phases of the input.
fn phases(plan: &Plan) -> impl Iterator<Item = InputPhase> {
    let (window, plan) = (plan.window, *plan);
    let [lines, columns] = [0, 1].map(|i| window.stride[i].min(plan.input.size[i]));
    (0..lines * columns).map(move |i| {
        let phase = [i / columns, i % columns];
        let sizes = |i: usize| [plan.input.size[i], plan.output[i]];
        let axis = |i: usize| Axis::backward(&window, i, phase[i], sizes(i));
        let [(height, first_line), (width, first_column)] = [axis(0), axis(1)];
        let tap = |t: usize, u: usize| {
            (first_line + t * window.stride[0]) * window.kernel[1]
                + first_column
                + u * window.stride[1]
        };
        let taps = (0..height.taps).flat_map(|t| (0..width.taps).map(move |u| (t, u)));
        InputPhase {
            phase,
            axes: [height, width],
            taps: taps.map(|(t, u)| tap(t, u)).collect(),
        }
    })
}
