//! The layer that does nothing.

use gpipe_tensor::Tensors;

use crate::{Cost, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// Returns its input, at no cost.
#[derive(Debug)]
pub struct Identity {
    name: String,
}

impl Identity {
    /// A layer of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl Layer for Identity {
    fn name(&self) -> &str {
        &self.name
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        Ok(Cost {
            outputs: inputs.to_vec(),
            memory: Memory::handed_on(inputs.len()),
            ..Cost::default()
        })
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        Ok((x, Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
