//! Rotary positions (arXiv:2104.09864).

use gpipe_tensor::ops::{self, CacheSpan, Rope};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{Flows, output, single, times, unexpected};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, Memory, Param, PassContext, Pending, Result, Saved,
};

/// Queries and keys turned by their positions, and values, side by side: from (B, T, queries), (B, T, keys) and
/// (B, T, keys) to (B, T, queries + 2·keys), which [`CausalAttention`](super::CausalAttention) takes.
#[derive(Debug)]
pub struct Rotary {
    name: String,
    /// Heads of keys and values.
    groups: usize,
    rope: Rope,
}

impl Rotary {
    /// Turns queries, and keys of `groups` heads. Others, and a `rope` that cannot turn the positions, are errors of
    /// [`cost`](Layer::cost).
    pub fn new(name: impl Into<String>, groups: usize, rope: Rope) -> Self {
        Self {
            name: name.into(),
            groups,
            rope,
        }
    }

    /// The result of such queries, keys and values.
    pub(super) fn packed(&self, parts: [&Flow; 3]) -> Result<Flow> {
        let [queries, keys, values] = parts.map(|part| part.shape.last());
        let (size, groups) = (self.rope.size, self.groups);
        let in_heads = |width: usize| width > 0 && width.checked_rem(size) == Some(0);
        let of_groups = keys == values && groups.checked_mul(size) == Some(keys);
        let is_alike = |part: &Flow| {
            part.dtype == parts[0].dtype && part.shape.with_last(queries) == parts[0].shape
        };
        let is_whole = parts[0].dtype.is_float() && parts[0].shape.rank() == 3;
        if !is_whole || !parts.into_iter().all(is_alike) {
            let expected = "queries, keys and values of shape (batch, time, width)";
            let flows = parts.map(Flow::clone);
            return Err(unexpected(&self.name, expected, Flows(&flows)));
        }
        if !size.is_multiple_of(2) || !in_heads(queries) || !in_heads(keys) || !of_groups {
            let expected = format!(
                "heads of an even size, here {size}: some of queries, and {groups} of keys and of values"
            );
            let got = format!("projections to {queries}, {keys} and {values}");
            return Err(unexpected(&self.name, expected, got));
        }
        let positions = parts[0].shape.dims()[1];
        self.rope
            .check(positions)
            .map_err(Error::within(&self.name))?;
        let width = queries.saturating_add(keys.saturating_mul(2));
        output(&self.name, parts[0].shape.with_last(width), parts[0].dtype)
    }

    /// Queries, keys and values from position 0 on.
    pub(super) fn turned(&self, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
        ops::rope(q, k, v, &self.rope).map_err(Error::within(&self.name))
    }

    /// Queries, keys and values behind those of a cache.
    pub(super) fn turned_behind(
        &self,
        span: &CacheSpan,
        [q, k, v]: [&Tensor; 3],
    ) -> Result<Tensor> {
        let Some(past) = span.common_past() else {
            return Err(Error::Config(format!(
                "{}: a pass over rows of different lengths: pass them one by one",
                self.name
            )));
        };
        let rope = Rope {
            first: self.rope.first.saturating_add(past as u64),
            ..self.rope
        };
        ops::rope(q, k, v, &rope).map_err(Error::within(&self.name))
    }

    /// The gradients of queries, keys and values from that of the result.
    pub(super) fn turned_back(&self, dy: &Tensor) -> Result<[Tensor; 3]> {
        ops::rope_grad(dy, self.groups, &self.rope).map_err(Error::within(&self.name))
    }

    fn parts(&self, x: Tensors) -> Result<[Tensor; 3]> {
        let count = x.len();
        let parts: Vec<Tensor> = x.into_iter().collect();
        let parts: std::result::Result<[Tensor; 3], _> = parts.try_into();
        parts.map_err(|_| unexpected(&self.name, "three tensors", count))
    }
}

/// FLOPs of turning these queries and keys, each way: 3 for an element.
pub(super) fn turning(queries: &Flow, keys: &Flow) -> u64 {
    times(&[3, queries.elements().saturating_add(keys.elements())])
}

impl Layer for Rotary {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        3
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [q, k, v] = inputs else {
            return Err(unexpected(&self.name, "three tensors", Flows(inputs)));
        };
        let y = self.packed([q, k, v])?;
        let turned = turning(q, k);
        let memory = Memory::new()
            .with_forward_peak(y.bytes())
            .with_input_grad_peak(y.bytes());
        let traffic = times(&[4, y.bytes()]);
        Ok(Cost::new(vec![y])
            .with_flops(turned, turned, 0)
            .with_memory(memory)
            .with_traffic(traffic))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let parts = self.parts(x)?;
        Ok((smallvec![self.turned(parts.each_ref())?], Saved::default()))
    }

    fn forward_cached(
        &self,
        _cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        _cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let parts = self.parts(x)?;
        Ok(smallvec![self.turned_behind(span, parts.each_ref())?])
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let parts = self.turned_back(&single(&self.name, dy)?)?;
        Ok((parts.into_iter().collect(), Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
