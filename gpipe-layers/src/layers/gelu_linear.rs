//! y = GELU(x)·W + b.

use gpipe_tensor::ops::{self, Gelu};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected, unpack};
use super::{Activation, Function, Linear};
use crate::{
    Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved, TensorSet,
};

/// A [`Linear`] with the GELU before it, bit for bit as the two in a row. Apart they would keep both x
/// and GELU(x), the largest tensors of a transformer block; this keeps x alone, and computes GELU(x) again
/// where its slope is computed, which takes the same exponential.
#[derive(Debug)]
pub struct GeluLinear {
    form: Gelu,
    linear: Linear,
}

impl GeluLinear {
    /// `linear` applied to the GELU of its input.
    pub fn new(form: Gelu, linear: Linear) -> Self {
        Self { form, linear }
    }

    /// The function by itself.
    fn activation(&self) -> Activation {
        Activation::new(self.name(), Function::Gelu(self.form))
    }

    fn gelu(&self, x: &Tensor) -> Result<Tensor> {
        ops::gelu(x, self.form).map_err(Error::within(self.name()))
    }
}

impl Layer for GeluLinear {
    fn name(&self) -> &str {
        self.linear.name()
    }

    /// The sum of both costs; the backward pass of GELU counts as its input gradient.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(self.name(), inputs, None)?;
        let activation = self.activation().cost(inputs)?;
        let linear = self.linear.cost(inputs)?;
        if let Some(y) = linear.outputs.iter().find(|y| y.dtype != x.dtype) {
            return Err(unexpected(self.name(), format!("{} elements", y.dtype), x));
        }
        Ok(Cost {
            forward: linear.forward.saturating_add(activation.forward),
            input_grad: linear.input_grad.saturating_add(activation.input_grad),
            memory: Memory {
                saved_inputs: TensorSet::All,
                pending_own: x.bytes(),
                pending_grads: TensorSet::All,
                forward_peak: linear.memory.forward_peak.saturating_add(x.bytes()),
                input_grad_peak: times(&[2, x.bytes()]),
                param_only_grad_peak: x.bytes(),
                ..Memory::default()
            },
            // GELU(x) is written once more.
            traffic: [activation.traffic, x.bytes()]
                .into_iter()
                .fold(linear.traffic, u64::saturating_add),
            ..linear
        })
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let activation = self.activation().lingvo(inputs)?;
        Ok(self.linear.lingvo(inputs)?.saturating_add(activation))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(self.name(), x)?;
        let (y, _) = self.linear.forward(cx, smallvec![self.gelu(&x)?])?;
        let saved = Saved {
            tensors: smallvec![x],
            ..Saved::default()
        };
        Ok((y, saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [x] = unpack(self.name(), saved.tensors)?;
        // The linear layer only moves what it saved to `Pending`: x stands in for GELU(x) until that
        // is computed below.
        let stand_in = Saved {
            tensors: smallvec![x.clone()],
            ..Saved::default()
        };
        let (flow, mut pending) = self.linear.input_grad(stand_in, dy)?;
        let mut dx = single(self.name(), flow)?;
        pending.tensors[0] =
            ops::gelu_with_grad(&x, &mut dx, self.form).map_err(Error::within(self.name()))?;
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let [x] = unpack(self.name(), saved.tensors)?;
        let given = Saved {
            tensors: smallvec![self.gelu(&x)?],
            ..Saved::default()
        };
        self.linear.param_only_grad(given, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.linear.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.linear.params(visit);
    }
}
