//! Tensors side by side.

use gpipe_tensor::{Tensor, Tensors, ops};

use super::flow::{Flows, output, times, unexpected};
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// The first tensors of the flow side by side along their innermost extent, the channels of images.
#[derive(Debug)]
pub struct Concat {
    name: String,
    tensors: usize,
}

impl Concat {
    /// A concatenation of this many tensors, 2 for a skip connection.
    pub fn new(name: impl Into<String>, tensors: usize) -> Self {
        Self {
            name: name.into(),
            tensors,
        }
    }
}

/// The widths of the tensors, by which a gradient is cut.
type Widths = Vec<usize>;

impl Layer for Concat {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        self.tensors
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let same_rows = |x: &Flow, first: &Flow| {
            let last = first.shape.last();
            x.dtype == first.dtype && x.shape.with_last(last) == first.shape
        };
        let first = match inputs {
            [first, ..]
                if inputs.len() == self.tensors
                    && first.dtype.is_float()
                    && inputs.iter().all(|x| same_rows(x, first)) =>
            {
                first
            }
            _ => {
                let expected = format!(
                    "{} tensors of floats of one shape but for the innermost extent",
                    self.tensors
                );
                return Err(unexpected(&self.name, expected, Flows(inputs)));
            }
        };
        let widths = inputs.iter().map(|x| x.shape.last());
        let width = widths.fold(0, usize::saturating_add);
        let y = output(&self.name, first.shape.with_last(width), first.dtype)?;
        let memory = Memory::new()
            .with_forward_peak(y.bytes())
            .with_input_grad_peak(y.bytes());
        let traffic = times(&[4, y.bytes()]);
        Ok(Cost::new(vec![y]).with_memory(memory).with_traffic(traffic))
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let parts: Vec<&Tensor> = x.iter().collect();
        let y = ops::concat(&parts).map_err(Error::within(&self.name))?;
        let widths: Widths = x.iter().map(|x| x.shape().last()).collect();
        Ok((Tensors::from_iter([y]), Saved::default().with_value(widths)))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let widths: Widths = saved.take_value(&self.name)?;
        let dy = super::flow::single(&self.name, dy)?;
        let mut at = 0;
        let part = |width: usize| {
            at += width;
            ops::columns(&dy, at - width..at).map_err(Error::within(&self.name))
        };
        let dx: Result<Tensors> = widths.into_iter().map(part).collect();
        Ok((dx?, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
