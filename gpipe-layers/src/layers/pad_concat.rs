//! The end of a skip connection of a U-Net: an image grown to the size of the skip, beside it.

use gpipe_tensor::{Shape, Tensors, ops};
use smallvec::smallvec;

use super::flow::{Flows, output, single, times, unexpected};
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// The first two tensors of the flow (samples, height, width, channels), side by side along their channels; the
/// first, which may be smaller, with zeros below and to the right up to the size of the second.
///
/// A layer that halves images of odd size and one that doubles them leave the first a pixel smaller.
#[derive(Debug)]
pub struct PadConcat {
    name: String,
}

impl PadConcat {
    /// A layer of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The shape of the first image, grown to the size of the second.
    fn grown(&self, x: &Shape, skip: &Shape, got: impl std::fmt::Display) -> Result<Shape> {
        match (x.dims(), skip.dims()) {
            (&[samples, height, width, channels], &[of_skip, h, w, _])
                if samples == of_skip && height <= h && width <= w =>
            {
                Ok([samples, h, w, channels].into())
            }
            _ => {
                let expected = "images (samples, height, width, channels) and a skip of the same size or larger";
                Err(unexpected(&self.name, expected, got))
            }
        }
    }
}

/// Height and width.
fn size(shape: &Shape) -> [usize; 2] {
    match *shape.dims() {
        [_, height, width, _] => [height, width],
        _ => [0; 2],
    }
}

/// The shape of the first image, and the channels of both.
type Seen = (Shape, [usize; 2]);

impl Layer for PadConcat {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        2
    }

    /// Copies are no FLOPs.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [x, skip] = inputs else {
            return Err(unexpected(&self.name, "two images", Flows(inputs)));
        };
        if !x.dtype.is_float() || skip.dtype != x.dtype {
            let expected = "two images of floats";
            return Err(unexpected(&self.name, expected, Flows(inputs)));
        }
        let grown = self.grown(&x.shape, &skip.shape, Flows(inputs))?;
        let grown = output(&self.name, grown, x.dtype)?;
        let width = x.shape.last().saturating_add(skip.shape.last());
        let y = output(&self.name, skip.shape.with_last(width), x.dtype)?;
        let pads = grown.shape != x.shape;
        let (copy, back) = match pads {
            // The grown image, or its gradient, and one result.
            true => (
                grown.bytes(),
                x.bytes().saturating_add(grown.bytes().max(skip.bytes())),
            ),
            false => (0, y.bytes()),
        };
        let memory = Memory::new()
            .with_forward_peak(y.bytes().saturating_add(copy))
            .with_input_grad_peak(back);
        let copied = match pads {
            true => times(&[2, x.bytes().saturating_add(grown.bytes())]),
            false => 0,
        };
        let traffic = times(&[4, y.bytes()]).saturating_add(copied);
        Ok(Cost::new(vec![y]).with_memory(memory).with_traffic(traffic))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let [x, skip] = x.as_slice() else {
            return Err(unexpected(&self.name, "two images", x.len()));
        };
        let grown = self.grown(x.shape(), skip.shape(), x.shape())?;
        let y = match grown == *x.shape() {
            true => ops::concat(&[x, skip]),
            false => ops::pad2d(x, [0; 2], size(&grown)).and_then(|x| ops::concat(&[&x, skip])),
        };
        let y = y.map_err(Error::within(&self.name))?;
        let channels = [x.shape().last(), skip.shape().last()];
        let seen: Seen = (x.shape().clone(), channels);
        Ok((smallvec![y], Saved::default().with_value(seen)))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let (shape, [of_x, of_skip]): Seen = saved.take_value(&self.name)?;
        let dy = single(&self.name, dy)?;
        let within = Error::within(&self.name);
        let part = |columns| ops::columns(&dy, columns);
        let dx = part(0..of_x).and_then(|dx| match *dx.shape() == shape {
            true => Ok(dx),
            false => ops::pad2d(&dx, [0; 2], size(&shape)),
        });
        let both = dx.and_then(|dx| Ok(smallvec![dx, part(of_x..of_x + of_skip)?]));
        Ok((both.map_err(within)?, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
