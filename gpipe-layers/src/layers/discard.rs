//! The end of tensors that nothing takes any more.

use gpipe_tensor::{Shape, Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{Flows, single, unexpected};
use crate::{Cost, Error, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved};

/// The first tensor of floats of a flow without those behind it, whose gradients are zero.
#[derive(Debug)]
pub struct Discard {
    name: String,
    tensors: usize,
}

impl Discard {
    /// Of the first `tensors` tensors of the flow, all but the first end here.
    pub fn new(name: impl Into<String>, tensors: usize) -> Self {
        Self {
            name: name.into(),
            tensors,
        }
    }
}

impl Layer for Discard {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        self.tensors
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = inputs.first().filter(|x| x.dtype.is_float());
        let Some(x) = x.filter(|_| inputs.len() == self.tensors) else {
            let expected = format!("{} tensors, the first of floats", self.tensors);
            return Err(unexpected(&self.name, expected, Flows(inputs)));
        };
        let ended = inputs[1..].iter().filter(|x| x.dtype.is_float());
        let zeros = ended.map(Flow::bytes).fold(0, u64::saturating_add);
        let memory = Memory::new()
            .with_outputs(vec![Origin::Same(0)])
            .with_gradients(vec![Origin::Same(0)])
            .with_input_grad_peak(zeros);
        Ok(Cost::new(vec![x.clone()])
            .with_memory(memory)
            .with_traffic(zeros))
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let count = x.len();
        let mut x = x.into_iter();
        let Some(first) = x.next().filter(|_| count == self.tensors) else {
            let expected = format!("{} tensors", self.tensors);
            return Err(unexpected(&self.name, expected, count));
        };
        let floats = x.filter(|x| x.dtype().is_float());
        let shapes: Vec<Shape> = floats.map(|x| x.shape().clone()).collect();
        let saved = Saved {
            shapes,
            ..Saved::default()
        };
        Ok((smallvec![first], saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        let zeros = |shape| Tensor::zeros(dy.device(), shape)?.to_dtype(dy.dtype());
        let zeros: gpipe_tensor::Result<Tensors> = saved.shapes.into_iter().map(zeros).collect();
        let mut dx = zeros.map_err(Error::within(&self.name))?;
        dx.insert(0, dy);
        Ok((dx, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
