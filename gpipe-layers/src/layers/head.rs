//! The head of a language model: a score for every token.

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors};

use super::{Layout, Linear};
use crate::lingvo;
use crate::{
    Cost, Error, Flow, Init, Layer, LayerCache, Param, PassContext, Pending, Result, Saved,
};

/// logits = x·Wᵀ with W (vocab, width), which lies like a table of tokens so that it can be tied to
/// one. It differs from a [`Linear`] in Lingvo's cost, and in bf16 and in TF32 ([`round_to_tf32`](crate::round_to_tf32)) in the
/// room between the rows of its result ([`gpipe_tensor::ops::padded`]).
#[derive(Debug)]
pub struct Head(Linear);

impl Head {
    /// A head with the parameter `{name}.weight`, initialized from a normal
    /// distribution with this standard deviation.
    pub fn new(name: impl Into<String>, width: usize, vocab: usize, std: f32) -> Self {
        let linear = Linear::new(name, width, vocab, Layout::OutIn).padded();
        Self(linear.init(Init::Normal(std), Init::Zeros))
    }

    /// The same with its weight a place of the parameter `owner`, an embedding's table that comes
    /// earlier. The place has a value and a gradient of its own.
    #[must_use]
    pub fn tied_to(self, owner: &str) -> Self {
        Self(self.0.tied_to(owner))
    }
}

impl Layer for Head {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        self.0.cost(inputs)
    }

    /// Nearly nothing, whatever the size (`GPipeTransformerSoftmaxLayer`).
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let logits = &self.0.cost(inputs)?.outputs[0];
        Ok(lingvo::transformer_softmax(&inputs[0].shape, logits.shape.last())?.flops)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.0.forward(cx, x)
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        self.0.recompute(cx, x)
    }

    /// Of a single sample, the last position's scores alone.
    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let last = |x: &Tensor| match x.shape().dims() {
            &[1, time, width] if time > 1 => {
                let rows = x.reshape([time, width])?;
                rows.rows(time - 1..time)?.reshape([1, 1, width])
            }
            _ => Ok(x.clone()),
        };
        let x: gpipe_tensor::Result<Tensors> = x.iter().map(last).collect();
        let x = x.map_err(Error::within(self.name()))?;
        self.0.forward_cached(cx, x, span, cache)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.0.input_grad(saved, dy)
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        self.0.param_only_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.0.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.0.params(visit);
    }
}
