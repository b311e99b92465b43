//! Images of twice the size.

use gpipe_tensor::ops::Window;
use gpipe_tensor::{Shape, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, foreign, output, single, times, unexpected};
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// The pixels that one pixel becomes.
const WINDOW: Window = Window::square(2, 2, 0);

/// Doubles height and width of images (samples, height, width, channels): each pixel becomes four, as with
/// PyTorch's `Upsample(scale_factor=2)` (nearest).
#[derive(Debug)]
pub struct Upsample2d {
    name: String,
}

impl Upsample2d {
    /// A layer that doubles height and width.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The shape of the result.
    fn doubled(&self, x: &Shape, got: impl std::fmt::Display) -> Result<Shape> {
        match *x.dims() {
            [samples, height, width, channels] => {
                let size = [height, width].map(|pixels| pixels.saturating_mul(2));
                // The pass is the gradient of a pool.
                WINDOW.output(size).map_err(Error::within(&self.name))?;
                Ok(Shape::from([samples, size[0], size[1], channels]))
            }
            _ => Err(unexpected(
                &self.name,
                "images (samples, height, width, channels)",
                got,
            )),
        }
    }

    /// Four times the result of a pool's pass: a mean becomes a sum. The factor is a power of two, so
    /// no digit is lost.
    fn four_times(&self, pooled: gpipe_tensor::Result<Tensor>) -> Result<Tensor> {
        let scaled = pooled.and_then(|mut pooled| {
            ops::scale_assign(&mut pooled, 4.0)?;
            Ok(pooled)
        });
        scaled.map_err(Error::within(&self.name))
    }
}

impl Layer for Upsample2d {
    fn name(&self) -> &str {
        &self.name
    }

    /// Copies are no FLOPs; the gradient is a sum, 1 FLOP for each element of dY.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let y = output(&self.name, self.doubled(&x.shape, x)?, x.dtype)?;
        let memory = Memory::new()
            .with_forward_peak(y.bytes())
            .with_input_grad_peak(x.bytes());
        Ok(Cost::new(vec![y.clone()])
            .with_flops(0, y.elements(), 0)
            .with_memory(memory)
            // x, y written and scaled; dy, dx written and scaled.
            .with_traffic(times(&[4, x.bytes()]).saturating_add(times(&[4, y.bytes()]))))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let shape = self.doubled(x.shape(), x.shape())?;
        let y = self.four_times(ops::avg_pool2d_grad(&x, &shape, &WINDOW))?;
        Ok((smallvec![y], Saved::default().with_shape(shape)))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        match saved.shapes.as_slice() {
            [shape] if shape == dy.shape() => {}
            [shape] => {
                let expected = format!("a gradient of shape {shape}");
                return Err(unexpected(&self.name, expected, dy.shape()));
            }
            _ => return Err(foreign(&self.name, 1, saved.shapes.len())),
        }
        let dx = self.four_times(ops::avg_pool2d(&dy, &WINDOW))?;
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
