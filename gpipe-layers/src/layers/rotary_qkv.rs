//! The projections to queries, keys and values, with rotary positions.

use gpipe_tensor::ops::{self, CacheSpan, Rope};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::Linear;
use super::flow::{floats, foreign, single, times, unexpected};
use super::rotary::{Rotary, turning};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, LoraSettings, Memory, Param, PassContext, Pending,
    Result, Saved,
};

/// Three linear maps of one input, whose first two results are turned by their positions: from
/// (B, T, width) to (B, T, queries + 2·keys), as [`Rotary`] gives them.
#[derive(Debug)]
pub struct RotaryQkv {
    name: String,
    /// To queries, keys and values.
    projections: [Linear; 3],
    rotary: Rotary,
}

impl RotaryQkv {
    /// Projections to queries, and to keys and values of `groups` heads each. Others, and a `rope` that cannot turn the
    /// positions, are errors of [`cost`](Layer::cost).
    pub fn new(
        name: impl Into<String>,
        projections: [Linear; 3],
        groups: usize,
        rope: Rope,
    ) -> Self {
        let name = name.into();
        Self {
            rotary: Rotary::new(&*name, groups, rope),
            name,
            projections,
        }
    }

    fn costs(&self, inputs: &[Flow]) -> Result<[Cost; 3]> {
        let x = floats(&self.name, inputs, None)?;
        if x.shape.rank() != 3 {
            let expected = "floats of shape (batch, time, width)";
            return Err(unexpected(&self.name, expected, x));
        }
        let [q, k, v] = self.projections.each_ref().map(|p| p.cost(inputs));
        Ok([q?, k?, v?])
    }

    /// Queries, keys and values, and what each projection saves.
    fn project(&self, cx: &PassContext, x: Tensors) -> Result<([Tensor; 3], Vec<Saved>)> {
        let x = single(&self.name, x)?;
        let mut nested = Vec::with_capacity(3);
        let mut part = |projection: &Linear| {
            let (y, saved) = projection.forward(cx, smallvec![x.clone()])?;
            nested.push(saved);
            single(&self.name, y)
        };
        let [q, k, v] = &self.projections;
        let parts = [part(q)?, part(k)?, part(v)?];
        Ok((parts, nested))
    }

    fn saved(&self, saved: Saved) -> Result<[Saved; 3]> {
        let count = saved.nested.len();
        let parts: std::result::Result<[Saved; 3], _> = saved.nested.try_into();
        parts.map_err(|_| foreign(&self.name, 3, count))
    }
}

impl Layer for RotaryQkv {
    fn name(&self) -> &str {
        &self.name
    }

    /// The sum of the three products, and 3 FLOPs for each element of queries and keys, both ways.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let costs = self.costs(inputs)?;
        let total = |part: fn(&Cost) -> u64| costs.iter().map(part).fold(0, u64::saturating_add);
        let x = &inputs[0];
        let [queries, keys, values] = costs.each_ref().map(|cost| &cost.outputs[0]);
        let y = self.rotary.packed([queries, keys, values])?;
        let turned = turning(queries, keys);
        let packed = y.bytes();
        // What the projections so far hold, forward and back, and gave free; dX of the first, which the others are
        // added to, is behind all but its own.
        let (mut held, mut grown, mut freed) = (0u64, packed, 0u64);
        let [mut forward, mut back, mut params_only, mut weights] = [0u64; 4];
        for (i, cost) in costs.iter().enumerate() {
            let memory = &cost.memory;
            let sum = if i > 0 { x.bytes() } else { 0 };
            forward = forward.max(held.saturating_add(memory.forward_peak));
            back = back.max(
                grown
                    .saturating_add(sum)
                    .saturating_add(memory.input_grad_peak),
            );
            params_only = params_only.max(grown.saturating_add(memory.param_only_grad_peak));
            weights = weights.max(memory.weight_grad_peak.saturating_sub(freed));
            let part = cost.outputs[0].bytes();
            held = held.saturating_add(memory.saved_own).saturating_add(part);
            grown = grown.saturating_add(memory.grown());
            freed = freed
                .saturating_add(memory.pending_own)
                .saturating_add(part);
        }
        let first = &costs[0].memory;
        Ok(Cost {
            forward: total(|cost| cost.forward).saturating_add(turned),
            input_grad: total(|cost| cost.input_grad)
                .saturating_add(turned)
                .saturating_add(times(&[2, x.elements()])),
            weight_grad: total(|cost| cost.weight_grad),
            params: total(|cost| cost.params),
            memory: Memory {
                saved_inputs: first.saved_inputs.clone(),
                saved_own: total(|cost| cost.memory.saved_own),
                pending_inputs: first.pending_inputs.clone(),
                pending_own: total(|cost| cost.memory.pending_own).saturating_add(packed),
                forward_peak: forward.max(held.saturating_add(packed)),
                input_grad_peak: back,
                param_only_grad_peak: params_only,
                weight_grad_peak: weights,
                ..Memory::default()
            },
            // Packing and taking apart, and the sums of dX.
            traffic: total(|cost| cost.traffic)
                .saturating_add(times(&[4, packed]))
                .saturating_add(times(&[6, x.bytes()])),
            outputs: vec![y],
            ..Cost::default()
        })
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let (parts, nested) = self.project(cx, x)?;
        let saved = Saved {
            nested,
            ..Saved::default()
        };
        Ok((smallvec![self.rotary.turned(parts.each_ref())?], saved))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        _cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let (parts, _) = self.project(cx, x)?;
        Ok(smallvec![
            self.rotary.turned_behind(span, parts.each_ref())?
        ])
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let saved = self.saved(saved)?;
        let dy = single(&self.name, dy)?;
        let parts = self.rotary.turned_back(&dy)?;
        let mut sum: Option<Tensor> = None;
        let mut nested = Vec::with_capacity(3);
        for ((projection, saved), part) in self.projections.iter().zip(saved).zip(parts) {
            let (dx, pending) = projection.input_grad(saved, smallvec![part])?;
            nested.push(pending);
            let dx = single(&self.name, dx)?;
            match &mut sum {
                None => sum = Some(dx),
                Some(sum) => ops::add_assign(sum, &dx).map_err(Error::within(&self.name))?,
            }
        }
        let pending = Pending {
            nested,
            ..Pending::default()
        };
        Ok((sum.into_iter().collect(), pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let saved = self.saved(saved)?;
        let dy = single(&self.name, dy)?;
        let parts = self.projections.iter().zip(saved);
        let nested = parts
            .zip(self.rotary.turned_back(&dy)?)
            .map(|((projection, saved), part)| projection.param_only_grad(saved, smallvec![part]))
            .collect::<Result<_>>()?;
        Ok(Pending {
            nested,
            ..Pending::default()
        })
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let count = pending.nested.len();
        if count != self.projections.len() {
            return Err(foreign(&self.name, self.projections.len(), count));
        }
        let mut parts = self.projections.iter_mut().zip(pending.nested);
        parts.try_for_each(|(projection, pending)| projection.weight_grad(pending))
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        for projection in &mut self.projections {
            projection.params(visit);
        }
    }
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        let mut projections = self.projections.iter_mut();
        projections.try_for_each(|projection| projection.adapt(which))
    }
}
