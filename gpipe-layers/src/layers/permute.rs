//! The tensors of a flow in another order.

use gpipe_tensor::Tensors;
use smallvec::SmallVec;

use super::flow::{Flows, unexpected};
use crate::{Cost, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved};

/// The first tensors of the flow in another order, at no cost: skip connections that cross each other need it.
#[derive(Debug)]
pub struct Permute {
    name: String,
    order: Vec<usize>,
}

impl Permute {
    /// A layer of this name whose output i is the input at place `order[i]`, counted from 0.
    ///
    /// An order that is not one of all places up to its length is an error of [`cost`](Layer::cost).
    pub fn new(name: impl Into<String>, order: impl IntoIterator<Item = usize>) -> Self {
        Self {
            name: name.into(),
            order: order.into_iter().collect(),
        }
    }

    /// The inputs in the order of the outputs.
    fn ordered<T: Clone>(&self, given: &[T]) -> Option<Vec<T>> {
        let places = 0..self.order.len();
        let whole = given.len() == places.len() && places.clone().all(|i| self.order.contains(&i));
        whole.then(|| {
            self.order
                .iter()
                .map(|&place| given[place].clone())
                .collect()
        })
    }

    /// For each input that is a tensor of floats, the place of its gradient in dY.
    fn gradients(&self, is_float: &[bool]) -> Vec<usize> {
        let outputs: Vec<usize> = self
            .order
            .iter()
            .copied()
            .filter(|&i| is_float[i])
            .collect();
        let inputs = (0..is_float.len()).filter(|&i| is_float[i]);
        inputs
            .filter_map(|input| outputs.iter().position(|&i| i == input))
            .collect()
    }

    fn expected(&self) -> String {
        format!(
            "{} tensors, for an order of each place once",
            self.order.len()
        )
    }
}

impl Layer for Permute {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        self.order.len()
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        self.order.iter().copied().zip(0..).collect()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let outputs = self.ordered(inputs);
        let outputs =
            outputs.ok_or_else(|| unexpected(&self.name, self.expected(), Flows(inputs)))?;
        let is_float: Vec<bool> = inputs.iter().map(|flow| flow.dtype.is_float()).collect();
        let same = |places: &[usize]| places.iter().map(|&place| Origin::Same(place)).collect();
        let memory = Memory::new()
            .with_outputs(same(&self.order))
            .with_gradients(same(&self.gradients(&is_float)));
        Ok(Cost::new(outputs).with_memory(memory))
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let is_float: SmallVec<[bool; 4]> = x.iter().map(|x| x.dtype().is_float()).collect();
        let y = self.ordered(&x);
        let y = y.ok_or_else(|| unexpected(&self.name, self.expected(), x.len()))?;
        Ok((y.into(), Saved::default().with_value(is_float)))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let is_float: SmallVec<[bool; 4]> = saved.take_value(&self.name)?;
        let places = self.gradients(&is_float).into_iter();
        let dx: Option<Tensors> = places.map(|place| dy.get(place).cloned()).collect();
        let expected = "a gradient for each tensor of floats";
        let dx = dx.ok_or_else(|| unexpected(&self.name, expected, dy.len()))?;
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
