//! Skip connections in a flat list of layers: a tensor twice, and sums of tensors.

use gpipe_tensor::Tensors;
use smallvec::smallvec;

use super::flow::{Flows, checked, single, times, unexpected};
use crate::lingvo;
use crate::sum::sum;
use crate::{Cost, Error, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved};

/// The first tensor of the flow twice: one for the layers that follow, one that passes them by until a layer such
/// as [`Add`] takes it.
///
/// dX is the sum of both gradients.
#[derive(Debug)]
pub struct Fork {
    name: String,
}

impl Fork {
    /// A fork of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// The sum of the first two tensors of the flow.
///
/// Both have dY as their gradient.
#[derive(Debug)]
pub struct Add {
    name: String,
}

impl Add {
    /// A sum of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl Layer for Fork {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [x] = inputs else {
            return Err(unexpected(&self.name, "one tensor", Flows(inputs)));
        };
        // Indices have no gradient to add.
        let elements = match x.dtype.is_float() {
            true => checked(&self.name, &x.shape)?,
            false => 0,
        };
        let bytes = times(&[elements, x.dtype.bytes() as u64]);
        let memory = Memory::new()
            .with_outputs(vec![Origin::Same(0); 2])
            .with_gradients(vec![Origin::Over(0)])
            .with_input_grad_peak(bytes);
        Ok(Cost::new(vec![x.clone(), x.clone()])
            .with_flops(0, elements, 0)
            .with_memory(memory)
            .with_traffic(times(&[3, bytes])))
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        Ok((smallvec![x.clone(), x], Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let mut dy = dy.into_iter();
        let dx = match (dy.next(), dy.next(), dy.next()) {
            // Of indices.
            (None, ..) => Tensors::new(),
            (Some(first), Some(second), None) => {
                smallvec![sum(first, &second).map_err(Error::within(&self.name))?]
            }
            (_, second, _) => {
                let count = 1 + usize::from(second.is_some()) * 2;
                return Err(unexpected(&self.name, "two gradients", count));
            }
        };
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

impl Layer for Add {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        2
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let expected = "two tensors of floats of the same shape";
        let x = match inputs {
            [x, skip] if x == skip && x.dtype.is_float() => x,
            _ => return Err(unexpected(&self.name, expected, Flows(inputs))),
        };
        let elements = checked(&self.name, &x.shape)?;
        let memory = Memory::new()
            .with_outputs(vec![Origin::Over(0)])
            .with_gradients(vec![Origin::Same(0); 2])
            .with_forward_peak(x.bytes());
        Ok(Cost::new(vec![x.clone()])
            .with_flops(elements, 0, 0)
            .with_memory(memory)
            .with_traffic(times(&[3, x.bytes()])))
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        self.cost(inputs)?;
        Ok(lingvo::residual_add(&inputs[0].shape)?.flops)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let count = x.len();
        let mut x = x.into_iter();
        let (Some(a), Some(b), None) = (x.next(), x.next(), x.next()) else {
            return Err(unexpected(&self.name, "two tensors", count));
        };
        let y = sum(a, &b).map_err(Error::within(&self.name))?;
        Ok((smallvec![y], Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        Ok((smallvec![dy.clone(), dy], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
