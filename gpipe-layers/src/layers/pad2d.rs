//! Images with zeros below and to the right.

use gpipe_tensor::{Shape, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, foreign, output, single, times, unexpected};
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// Images (samples, height, width, channels) with lines and columns of zeros below and to the right, or
/// moved up and to the left with zeros behind.
#[derive(Debug)]
pub struct Pad2d {
    name: String,
    /// Pixels that are cut off above and to the left.
    offset: [usize; 2],
    /// Lines and columns that the result has more.
    added: [usize; 2],
}

impl Pad2d {
    /// Adds `[lines, columns]` of zeros below and to the right.
    pub fn new(name: impl Into<String>, added: [usize; 2]) -> Self {
        Self {
            name: name.into(),
            offset: [0; 2],
            added,
        }
    }

    /// Moves images up and to the left by `[lines, columns]`: what leaves is lost, and zeros come in.
    pub fn shift(name: impl Into<String>, offset: [usize; 2]) -> Self {
        Self {
            name: name.into(),
            offset,
            added: [0; 2],
        }
    }

    fn changes(&self) -> bool {
        self.offset != [0; 2] || self.added != [0; 2]
    }

    fn result(&self, x: &Shape, got: impl std::fmt::Display) -> Result<Shape> {
        match *x.dims() {
            [samples, height, width, channels] => {
                let size = [
                    height.saturating_add(self.added[0]),
                    width.saturating_add(self.added[1]),
                ];
                if self.changes() {
                    let checked = ops::check_pad2d(self.offset(1), [height, width], size);
                    checked.map_err(Error::within(&self.name))?;
                }
                Ok(Shape::from([samples, size[0], size[1], channels]))
            }
            _ => Err(unexpected(
                &self.name,
                "images (samples, height, width, channels)",
                got,
            )),
        }
    }

    /// Pixels that are cut off above and to the left, or with a sign of -1 added there.
    fn offset(&self, sign: isize) -> [isize; 2] {
        self.offset.map(|pixels| {
            let pixels = isize::try_from(pixels).unwrap_or(isize::MAX);
            sign * pixels
        })
    }

    /// The images at this offset, of the size of this shape.
    fn at(&self, x: &Tensor, sign: isize, shape: &Shape) -> Result<Tensor> {
        if !self.changes() {
            return Ok(x.clone());
        }
        let size = match *shape.dims() {
            [_, height, width, _] => [height, width],
            _ => [0; 2],
        };
        let padded = ops::pad2d(x, self.offset(sign), size);
        padded.map_err(Error::within(&self.name))
    }
}

impl Layer for Pad2d {
    fn name(&self) -> &str {
        &self.name
    }

    /// Copies are no FLOPs.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let y = output(&self.name, self.result(&x.shape, x)?, x.dtype)?;
        if !self.changes() {
            return Ok(Cost::new(vec![y]).with_memory(Memory::handed_on(1)));
        }
        let memory = Memory::new()
            .with_forward_peak(y.bytes())
            .with_input_grad_peak(x.bytes());
        // x and y; dy and dx.
        let traffic = times(&[2, x.bytes().saturating_add(y.bytes())]);
        Ok(Cost::new(vec![y]).with_memory(memory).with_traffic(traffic))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let shape = self.result(x.shape(), x.shape())?;
        let y = self.at(&x, 1, &shape)?;
        Ok((smallvec![y], Saved::default().with_shape(x.shape().clone())))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        let [shape] = saved.shapes.as_slice() else {
            return Err(foreign(&self.name, 1, saved.shapes.len()));
        };
        let dx = self.at(&dy, -1, shape)?;
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
