//! Convolutions on a GPU: launches.

use super::kernels::{self, Windows};
use super::plan::Plan;
use crate::cuda::entry::Pointer;
use crate::cuda::{Gpu, Product};
use crate::ops::add;
use crate::ops::window::{Images, Window};
use crate::{DType, Result, Shape, Tensor};

/// Most bytes of gathered rows at a time.
const MOST_BYTES: usize = 64 << 20;

/// Some samples of a convolution in one group.
#[derive(Clone, Copy)]
struct Part<'a> {
    plan: &'a Plan,
    group: usize,
    first: usize,
    samples: usize,
}

/// All parts: each group of as many samples as fit.
fn parts(plan: &Plan) -> impl Iterator<Item = Part<'_>> {
    let sample = 4 * plan.output[0] * plan.output[1] * plan.window_width();
    let at_once = (MOST_BYTES / sample.max(1)).max(1);
    let all = plan.input.samples;
    (0..all).step_by(at_once).flat_map(move |first| {
        (0..plan.groups).map(move |group| Part {
            plan,
            group,
            first,
            samples: at_once.min(all - first),
        })
    })
}

impl Part<'_> {
    fn images(&self, images: Images) -> Images {
        Images {
            samples: self.samples,
            ..images
        }
    }

    /// The windows over the input.
    fn windows(&self) -> Windows {
        let plan = self.plan;
        Windows {
            images: self.images(plan.input),
            window: plan.window,
            output: plan.output,
            taken: (self.group * plan.inputs, plan.inputs),
        }
    }

    /// The group's channels of the result, pixel by pixel.
    fn results(&self) -> Windows {
        let plan = self.plan;
        let images = Images {
            samples: self.samples,
            size: plan.output,
            channels: plan.channels(),
        };
        Windows {
            images,
            window: Window::square(1, 1, 0),
            output: plan.output,
            taken: (self.group * plan.outputs, plan.outputs),
        }
    }

    /// The first of these samples of the input.
    fn input(&self, at: Pointer, stored: DType) -> Pointer {
        let plan = self.plan;
        let sample = plan.input.pixels() * plan.input.channels;
        Pointer(at.0 + (self.first * sample * stored.bytes()) as u64)
    }

    /// The first of these samples of the result.
    fn result(&self, at: Pointer, stored: DType) -> Pointer {
        let plan = self.plan;
        let sample = plan.output[0] * plan.output[1] * plan.channels();
        Pointer(at.0 + (self.first * sample * stored.bytes()) as u64)
    }

    /// The group's weights.
    fn weight(&self, at: Pointer, stored: DType) -> Pointer {
        let group = self.plan.outputs * self.plan.window_width();
        Pointer(at.0 + (self.group * group * stored.bytes()) as u64)
    }

    /// A product of these sizes.
    fn product(&self, [m, n, k]: [usize; 3], stored: DType, result: DType) -> Product {
        Product {
            m,
            n,
            k,
            a_transposed: false,
            b_transposed: false,
            accumulate: false,
            items: 1,
            pads: [0; 3],
            stored,
            result,
        }
    }
}

/// The convolution.
pub(super) fn forward(
    gpu: &Gpu,
    plan: &Plan,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    const OP: &str = "conv2d";
    let stored = x.dtype();
    let mut y = x.empty_like(plan.result())?;
    let is_whole = plan.groups == 1;
    if y.elements() == 0 {
        return Ok(y);
    }
    if plan.window_width() == 0 {
        y.fill(0.0)?;
    }
    if let Some(bias) = bias.filter(|_| is_whole) {
        add::cuda::repeat(gpu, bias, &mut y)?;
    }
    let to = y.written(OP, gpu, stored)?;
    let (x, weight) = (
        x.operand(OP, gpu, stored)?,
        weight.operand(OP, gpu, stored)?,
    );
    for part in parts(plan) {
        let windows = part.windows();
        let (rows, width) = (windows.rows(), windows.width());
        let gathered = gpu.alloc(stored.bytes() * rows * width)?;
        let from = part.input(x.at, stored);
        // SAFETY: x lives on this handle and has these samples; `gathered` was just made for these rows.
        unsafe { gpu.launch(&kernels::gather(stored, from, gathered.at(0), &windows)) }?;
        let weights = part.weight(weight.at, stored);
        let result = if is_whole { stored } else { DType::F32 };
        let product = Product {
            b_transposed: true,
            accumulate: is_whole && bias.is_some(),
            ..part.product([rows, plan.outputs, width], stored, result)
        };
        let out = part.result(to, stored);
        if is_whole {
            // SAFETY: the weight, on this handle, has `outputs` rows of `width` elements, and y a row of them for
            // each of the gathered ones.
            unsafe { gpu.multiply(product, gathered.at(0), weights, out) }?;
            continue;
        }
        let group = gpu.alloc(4 * rows * plan.outputs)?;
        // SAFETY: as above for a group, whose product was just given room; y has all its channels.
        unsafe {
            gpu.multiply(product, gathered.at(0), weights, group.at(0))?;
            gpu.launch(&kernels::add(stored, group.at(0), out, &part.results()))?;
        }
    }
    if let Some(bias) = bias.filter(|_| !is_whole) {
        let (n, width) = (y.elements(), plan.channels());
        let bias = bias.operand(OP, gpu, stored)?;
        // SAFETY: y has n elements in rows of `width`, as many as the bias has, both on this handle.
        unsafe { gpu.launch(&add::kernels::add(stored, to, bias.at, to, n, width)) }?;
    }
    Ok(y)
}

/// The gradient with respect to the input.
pub(super) fn input_grad(
    gpu: &Gpu,
    plan: &Plan,
    dy: &Tensor,
    weight: &Tensor,
    input: &Shape,
) -> Result<Tensor> {
    const OP: &str = "conv2d_input_grad";
    let stored = dy.dtype();
    let mut dx = dy.empty_like(input.clone())?;
    if dx.elements() == 0 {
        return Ok(dx);
    }
    let to = dx.written(OP, gpu, stored)?;
    let (dy, weight) = (
        dy.operand(OP, gpu, stored)?,
        weight.operand(OP, gpu, stored)?,
    );
    for part in parts(plan) {
        let windows = part.windows();
        let (rows, width) = (windows.rows(), windows.width());
        let own = part.own_gradient(gpu, stored, dy.at)?;
        let gathered = gpu.alloc(4 * rows * width)?;
        if plan.outputs == 0 {
            // SAFETY: it was just made for as many floats.
            unsafe { gpu.fill(gathered.at(0), 0.0, rows * width) }?;
        }
        let product = part.product([rows, width, plan.outputs], stored, DType::F32);
        let weights = part.weight(weight.at, stored);
        let out = part.input(to, stored);
        // SAFETY: a row of the group's gradients for each row that `gathered` was just made for, the weight as in
        // `forward`; dx has these samples.
        unsafe {
            gpu.multiply(product, own.at(), weights, gathered.at(0))?;
            gpu.launch(&kernels::add(stored, gathered.at(0), out, &windows))?;
        }
    }
    Ok(dx)
}

/// Adds the gradient with respect to the weight.
pub(super) fn weight_grad(
    gpu: &Gpu,
    plan: &Plan,
    x: &Tensor,
    dy: &Tensor,
    dw: &mut Tensor,
) -> Result<()> {
    const OP: &str = "conv2d_weight_grad";
    let stored = x.dtype();
    if dw.elements() == 0 {
        return Ok(());
    }
    let to = dw.written(OP, gpu, DType::F32)?;
    let (x, dy) = (x.operand(OP, gpu, stored)?, dy.operand(OP, gpu, stored)?);
    for part in parts(plan) {
        let windows = part.windows();
        let (rows, width) = (windows.rows(), windows.width());
        let own = part.own_gradient(gpu, stored, dy.at)?;
        let gathered = gpu.alloc(stored.bytes() * rows * width)?;
        let from = part.input(x.at, stored);
        // SAFETY: x lives on this handle and has these samples; `gathered` was just made for these rows.
        unsafe { gpu.launch(&kernels::gather(stored, from, gathered.at(0), &windows)) }?;
        let product = Product {
            a_transposed: true,
            accumulate: true,
            ..part.product([plan.outputs, width, rows], stored, DType::F32)
        };
        let weights = part.weight(to, DType::F32);
        // SAFETY: as many rows of gradients as of gathered pixels; dw has the weight's shape.
        unsafe { gpu.multiply(product, own.at(), gathered.at(0), weights) }?;
    }
    Ok(())
}

/// The gradient of a group's results, without gaps.
enum Own {
    /// All channels are the group's.
    There(Pointer),
    Gathered(crate::cuda::Memory),
}

impl Own {
    fn at(&self) -> Pointer {
        match self {
            Self::There(at) => *at,
            Self::Gathered(memory) => memory.at(0),
        }
    }
}

impl Part<'_> {
    fn own_gradient(&self, gpu: &Gpu, stored: DType, dy: Pointer) -> Result<Own> {
        let from = self.result(dy, stored);
        if self.plan.groups == 1 {
            return Ok(Own::There(from));
        }
        let results = self.results();
        let own = gpu.alloc(stored.bytes() * results.rows() * results.width())?;
        // SAFETY: dy lives on this handle and has the result's shape; `own` was just made for these rows.
        unsafe { gpu.launch(&kernels::gather(stored, from, own.at(0), &results)) }?;
        Ok(Own::Gathered(own))
    }
}
