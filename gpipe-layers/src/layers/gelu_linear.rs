//! y = GELU(x)·W + b.

use gpipe_tensor::ops::{self, Gelu};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{floats, foreign, single, times, unexpected};
use super::{Activation, Function, Linear};
use crate::{
    Cost, Error, Flow, Layer, LoraSettings, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
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

    /// x, the first tensor that is saved.
    fn saved_input<'a>(&self, saved: &'a Saved) -> Result<&'a Tensor> {
        let first = saved.tensors.first();
        first.ok_or_else(|| foreign(self.name(), 1, 0))
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
        let inside = &linear.memory;
        Ok(Cost {
            forward: linear.forward.saturating_add(activation.forward),
            recompute: Some(match self.linear.is_adapted() {
                true => linear.recomputed().saturating_add(activation.forward),
                false => 0,
            }),
            input_grad: linear.input_grad.saturating_add(activation.input_grad),
            memory: Memory {
                saved_inputs: TensorSet::All,
                saved_own: inside.saved_own,
                pending_own: inside.pending_own.saturating_add(x.bytes()),
                pending_grads: TensorSet::All,
                forward_peak: inside.forward_peak.saturating_add(x.bytes()),
                recompute_peak: match self.linear.is_adapted() {
                    true => inside
                        .recompute_peak
                        .map(|peak| peak.saturating_add(x.bytes())),
                    false => Some(inside.saved_own),
                },
                input_grad_peak: inside
                    .input_grad_peak
                    .max(inside.grown().saturating_add(times(&[2, x.bytes()]))),
                param_only_grad_peak: inside.param_only_grad_peak.saturating_add(x.bytes()),
                weight_grad_peak: inside.weight_grad_peak,
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
        let (y, mut saved) = self.linear.forward(cx, smallvec![self.gelu(&x)?])?;
        saved.tensors[0] = x;
        Ok((y, saved))
    }

    fn forward_onto(
        &self,
        cx: &PassContext,
        x: Tensors,
        onto: &Tensor,
    ) -> Result<(Tensors, Saved)> {
        let x = single(self.name(), x)?;
        let gelu = smallvec![self.gelu(&x)?];
        let (y, mut saved) = self.linear.forward_onto(cx, gelu, onto)?;
        saved.tensors[0] = x;
        Ok((y, saved))
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        let x = single(self.name(), x)?;
        if !self.linear.is_adapted() {
            return self.linear.recompute(cx, smallvec![x]);
        }
        let mut saved = self.linear.recompute(cx, smallvec![self.gelu(&x)?])?;
        saved.tensors[0] = x;
        Ok(saved)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        // x stands in for GELU(x) until that is computed below.
        let x = self.saved_input(&saved)?.clone();
        let (flow, mut pending) = self.linear.input_grad(saved, dy)?;
        let mut dx = single(self.name(), flow)?;
        pending.tensors[0] =
            ops::gelu_with_grad(&x, &mut dx, self.form).map_err(Error::within(self.name()))?;
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, mut saved: Saved, dy: Tensors) -> Result<Pending> {
        let x = self.saved_input(&saved)?.clone();
        saved.tensors[0] = self.gelu(&x)?;
        self.linear.param_only_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.linear.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.linear.params(visit);
    }
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        self.linear.adapt(which)
    }
}
