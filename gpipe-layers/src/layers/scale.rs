//! A constant factor.

use gpipe_tensor::{Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, single, times};
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// Every element times a number.
#[derive(Debug)]
pub struct Scale {
    name: String,
    factor: f32,
}

impl Scale {
    /// A layer that multiplies by `factor`.
    pub fn new(name: impl Into<String>, factor: f32) -> Self {
        Self {
            name: name.into(),
            factor,
        }
    }

    fn scaled(&self, x: Tensors) -> Result<Tensors> {
        let x = single(&self.name, x)?;
        let y = ops::scale(&x, self.factor).map_err(Error::within(&self.name))?;
        Ok(smallvec![y])
    }
}

impl Layer for Scale {
    fn name(&self) -> &str {
        &self.name
    }

    /// 1 FLOP an element, each way.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let memory = Memory::new()
            .with_forward_peak(x.bytes())
            .with_input_grad_peak(x.bytes());
        Ok(Cost::new(vec![x.clone()])
            .with_flops(x.elements(), x.elements(), 0)
            .with_memory(memory)
            .with_traffic(times(&[4, x.bytes()])))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        Ok((self.scaled(x)?, Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((self.scaled(dy)?, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
