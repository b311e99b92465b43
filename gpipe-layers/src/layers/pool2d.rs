//! Pools of images.

use gpipe_tensor::ops::Window;
use gpipe_tensor::{Shape, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, images, output, single, times, unexpected, unpack};
use crate::saved::foreign;
use crate::{
    Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved, TensorSet,
};

/// The largest value, or the mean, of each window of images (samples, height, width, channels).
///
/// Pixels beyond the border count for nothing: a mean is over the pixels that are there, as with PyTorch's
/// `count_include_pad=False`.
#[derive(Debug)]
pub struct Pool2d {
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Max(Window),
    Average(Window),
    /// The mean of all pixels: (samples, channels).
    WholeAverage,
}

impl Pool2d {
    /// The largest value of each window.
    pub fn max(name: impl Into<String>, window: Window) -> Self {
        Self::of(name, Kind::Max(window))
    }

    /// The mean of each window.
    pub fn average(name: impl Into<String>, window: Window) -> Self {
        Self::of(name, Kind::Average(window))
    }

    /// The mean of all pixels: images become rows (samples, channels).
    pub fn whole_average(name: impl Into<String>) -> Self {
        Self::of(name, Kind::WholeAverage)
    }

    fn of(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }

    /// An error unless every window holds a pixel: that of `ops`.
    fn check(&self, window: &Window, x: &Flow) -> Result<()> {
        if (0..2).any(|axis| window.padding[axis] > window.kernel[axis] / 2) {
            return Err(Error::Config(format!(
                "{}: padding is more than half of the kernel: use a padding of at most half of it",
                self.name
            )));
        }
        match x.shape.dims() {
            [_, 0, ..] | [_, _, 0, _] => {
                Err(unexpected(&self.name, "images of a pixel or more", x))
            }
            _ => Ok(()),
        }
    }

    /// The window for images of this shape.
    fn window(&self, shape: &Shape) -> Window {
        match (self.kind, shape.dims()) {
            (Kind::Max(window) | Kind::Average(window), _) => window,
            (Kind::WholeAverage, &[_, height, width, _]) => Window {
                kernel: [height, width],
                ..Window::square(1, 1, 0)
            },
            // Refused as no shape of images.
            (Kind::WholeAverage, _) => Window::square(1, 1, 0),
        }
    }
}

impl Layer for Pool2d {
    fn name(&self) -> &str {
        &self.name
    }

    /// A pixel of a window takes 1 FLOP forward and 1 backward.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let window = self.window(&x.shape);
        let y = images(&self.name, x, &window, x.shape.last())?;
        self.check(&window, x)?;
        let y = match self.kind {
            Kind::WholeAverage => [y.rows(), y.last()].into(),
            _ => y,
        };
        let y = output(&self.name, y, x.dtype)?;
        let [height, width] = window.kernel;
        let flops = times(&[height as u64, width as u64, y.elements()]);
        let keeps_input = matches!(self.kind, Kind::Max(_));
        Ok(Cost {
            forward: flops,
            input_grad: flops,
            memory: Memory {
                saved_inputs: match keeps_input {
                    true => TensorSet::All,
                    false => TensorSet::None,
                },
                forward_peak: y.bytes(),
                input_grad_peak: x.bytes(),
                ..Memory::default()
            },
            // x and y; dy, dx, and x again where it was kept.
            traffic: times(&[if keeps_input { 3 } else { 2 }, x.bytes()])
                .saturating_add(times(&[2, y.bytes()])),
            ..Cost::new(vec![y])
        })
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let window = self.window(x.shape());
        let y = match self.kind {
            Kind::Max(_) => ops::max_pool2d(&x, &window),
            Kind::Average(_) => ops::avg_pool2d(&x, &window),
            Kind::WholeAverage => ops::avg_pool2d(&x, &window)
                .and_then(|y| y.reshape([y.shape().rows(), y.shape().last()])),
        };
        let y = y.map_err(Error::within(&self.name))?;
        let saved = match self.kind {
            Kind::Max(_) => Saved::new([x]),
            _ => Saved::default().with_shape(x.shape().clone()),
        };
        Ok((smallvec![y], saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        let dx = match self.kind {
            Kind::Max(window) => {
                let [x] = unpack(&self.name, saved.tensors)?;
                ops::max_pool2d_grad(&x, &dy, &window)
            }
            _ => {
                let [shape] = saved.shapes.as_slice() else {
                    return Err(foreign(&self.name, 1, saved.shapes.len()));
                };
                self.average_grad(&dy, shape)
            }
        };
        let dx = dx.map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

impl Pool2d {
    fn average_grad(&self, dy: &Tensor, input: &Shape) -> gpipe_tensor::Result<Tensor> {
        let window = self.window(input);
        let dy = match self.kind {
            Kind::WholeAverage => dy.reshape([dy.shape().rows(), 1, 1, dy.shape().last()])?,
            _ => dy.clone(),
        };
        ops::avg_pool2d_grad(&dy, input, &window)
    }
}
