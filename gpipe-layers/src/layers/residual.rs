//! x + f(x), where f is a list of layers.

use std::sync::Arc;

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{Flows, floats, foreign, single, times, unexpected};
use super::skip::Add;
use super::{Sequential, replay};
use crate::cost::Inside;
use crate::lingvo;
use crate::sum::sum;
use crate::wiring::{Value, Wiring};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, LoraSettings, Param, PassContext, Pending, Result, Saved,
};

/// A list of layers with a skip connection: the input is added to their output.
#[derive(Debug)]
pub struct Residual {
    name: String,
    layers: Vec<Box<dyn Layer>>,
    /// Lingvo's cost, where it is not the sum of the parts.
    formula: Option<fn(&Flow) -> Result<u64>>,
}

impl Residual {
    /// x + f(x) with f these layers, each from one tensor to one, the last to the shape of the
    /// first's input.
    pub fn new(name: impl Into<String>, layers: Sequential) -> Self {
        Self {
            name: name.into(),
            layers: layers.into_layers(),
            formula: None,
        }
    }

    /// The same with a formula of the input for [`Layer::lingvo`], for a layer that Lingvo prices
    /// as a whole.
    #[must_use]
    pub fn priced_by_lingvo(self, formula: fn(&Flow) -> Result<u64>) -> Self {
        Self {
            formula: Some(formula),
            ..self
        }
    }

    /// The costs of the layers inside, each with the flow that enters it.
    fn inner(&self, inputs: &[Flow]) -> Result<Vec<(Vec<Flow>, Cost)>> {
        let x = floats(&self.name, inputs, None)?;
        let mut flow = inputs.to_vec();
        let mut inner = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let cost = layer.cost(&flow)?;
            let outputs = cost.outputs.clone();
            inner.push((std::mem::replace(&mut flow, outputs), cost));
        }
        if flow != inputs {
            let expected = format!("layers inside that lead back to {x}");
            return Err(unexpected(&self.name, expected, Flows(&flow)));
        }
        Ok(inner)
    }

    /// The layers and the sum as a graph, where others are inside one of them.
    fn inside(&self, inputs: &[Flow], mut costs: Vec<Cost>) -> Result<Inside> {
        let value = |source| Value { source, place: 0 };
        let mut nodes: Vec<Vec<Value>> = (0..costs.len()).map(|i| vec![value(i)]).collect();
        nodes.push(vec![value(costs.len()), value(0)]);
        costs.push(Add::new(&self.name).cost(&[inputs, inputs].concat())?);
        Ok(Inside {
            wiring: Wiring {
                inputs: 1,
                outputs: vec![value(costs.len())],
                nodes,
            },
            last_recomputed: self.recomputed().checked_sub(1),
            costs,
            inputs: inputs.to_vec(),
        })
    }

    /// How many of the first layers a recomputation runs: those behind the last one that saves numbers save none.
    fn recomputed(&self) -> usize {
        let last = self.layers.iter().rposition(|layer| layer.saves_numbers());
        last.map_or(0, |last| last + 1)
    }

    /// The forward pass through the first layers, with what each saves.
    fn pass(
        &self,
        layers: &[Box<dyn Layer>],
        cx: &PassContext,
        x: &Tensor,
    ) -> Result<(Tensors, Vec<Saved>)> {
        let mut flow: Tensors = smallvec![x.clone()];
        let mut nested = Vec::with_capacity(self.layers.len());
        for layer in layers {
            let (y, saved) = layer.forward(cx, flow)?;
            nested.push(saved);
            flow = y;
        }
        Ok((flow, nested))
    }

    /// The gradient that [`back`] gave, to which that of the skip connection is added where no layer is inside to do so.
    fn with_skip(&self, dx: Tensors) -> Result<Tensors> {
        match self.layers.is_empty() {
            true => self.add(dx.clone(), &dx[0]),
            false => Ok(dx),
        }
    }

    fn add(&self, inner: Tensors, skip: &Tensor) -> Result<Tensors> {
        let inner = single(&self.name, inner)?;
        Ok(smallvec![
            sum(inner, skip).map_err(Error::within(&self.name))?
        ])
    }
}

/// Backward pass through `layers`, given last to first; `step` handles one of them, the first with the gradient of
/// the skip connection, onto which its own goes. Gives the result, and the pending state of each layer, the last first.
fn back<L, P>(
    name: &str,
    layers: impl ExactSizeIterator<Item = L>,
    saved: Saved,
    dy: Tensors,
    mut step: impl FnMut(L, Saved, Tensors, Option<&Tensor>) -> Result<(Tensors, P)>,
) -> Result<(Tensors, Vec<P>)> {
    let count = layers.len();
    if count != saved.nested.len() {
        return Err(foreign(name, count, saved.nested.len()));
    }
    let skip = single(name, dy)?;
    let mut dx: Tensors = smallvec![skip.clone()];
    let mut left = Vec::with_capacity(count);
    for (layer, saved) in layers.zip(saved.nested.into_iter().rev()) {
        let onto = (left.len() + 1 == count).then_some(&skip);
        let pending;
        (dx, pending) = step(layer, saved, dx, onto)?;
        left.push(pending);
    }
    Ok((dx, left))
}

impl Layer for Residual {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let inner: Vec<Cost> = self
            .inner(inputs)?
            .into_iter()
            .map(|(_, cost)| cost)
            .collect();
        let total = |part: fn(&Cost) -> u64| inner.iter().map(part).fold(0, u64::saturating_add);
        let x = &inputs[0];
        let recomputed = &inner[..self.recomputed()];
        Ok(Cost {
            outputs: inputs.to_vec(),
            forward: total(|cost| cost.forward).saturating_add(x.elements()),
            recompute: Some(recomputed.split_last().map_or(0, |(last, layers)| {
                let layers = layers.iter().map(|cost| cost.forward);
                layers.fold(last.recomputed(), u64::saturating_add)
            })),
            input_grad: total(|cost| cost.input_grad).saturating_add(x.elements()),
            // All layers but the first pass gradients on.
            param_only_grad: inner.first().map_or(0, |first| {
                let behind = inner[1..].iter().map(|cost| cost.input_grad);
                behind.fold(first.param_only_grad, u64::saturating_add)
            }),
            weight_grad: total(|cost| cost.weight_grad),
            params: total(|cost| cost.params),
            memory: replay::memory(x, &inner, recomputed),
            // Two operands and a sum, both ways.
            traffic: total(|cost| cost.traffic).saturating_add(times(&[6, x.bytes()])),
            gathered: total(|cost| cost.gathered),
            training_fault: inner.iter().find_map(|cost| cost.training_fault.clone()),
            inside: match inner.iter().any(|cost| cost.inside.is_some()) {
                true => Some(Arc::new(self.inside(inputs, inner)?)),
                false => None,
            },
        })
    }

    /// The sum of the parts and of `ResidualAdd`, or a formula of its own.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let inner = self.inner(inputs)?;
        if let Some(formula) = self.formula {
            return formula(&inputs[0]);
        }
        let mut flops = lingvo::residual_add(&inputs[0].shape)?.flops;
        for (layer, (flow, _)) in self.layers.iter().zip(&inner) {
            flops = flops.saturating_add(layer.lingvo(flow)?);
        }
        Ok(flops)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let skip = single(&self.name, x)?;
        let Some((last, layers)) = self.layers.split_last() else {
            return Ok((self.add(smallvec![skip.clone()], &skip)?, Saved::default()));
        };
        let (flow, mut nested) = self.pass(layers, cx, &skip)?;
        let (y, saved) = last.forward_onto(cx, flow, &skip)?;
        nested.push(saved);
        let saved = Saved {
            nested,
            ..Saved::default()
        };
        Ok((y, saved))
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        let skip = single(&self.name, x)?;
        let (recomputed, behind) = self.layers.split_at(self.recomputed());
        let mut nested = Vec::new();
        if let Some((last, layers)) = recomputed.split_last() {
            let flow;
            (flow, nested) = self.pass(layers, cx, &skip)?;
            nested.push(last.recompute(cx, flow)?);
        }
        for layer in behind {
            nested.push(layer.recompute(cx, Tensors::new())?);
        }
        Ok(Saved {
            nested,
            ..Saved::default()
        })
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let skip = single(&self.name, x)?;
        let mut flow: Tensors = smallvec![skip.clone()];
        let caches = cache.nested(self.layers.len());
        for (layer, cache) in self.layers.iter().zip(caches) {
            flow = layer.forward_cached(cx, flow, span, cache)?;
        }
        self.add(flow, &skip)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let layers = self.layers.iter().rev();
        let (dx, nested) = back(
            &self.name,
            layers,
            saved,
            dy,
            |layer, saved, dy, onto| match onto {
                Some(onto) => layer.input_grad_onto(saved, dy, onto),
                None => layer.input_grad(saved, dy),
            },
        )?;
        let dx = self.with_skip(dx)?;
        let pending = Pending {
            nested,
            ..Pending::default()
        };
        Ok((dx, pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let layers = self.layers.iter().rev();
        let (_, nested) = back(
            &self.name,
            layers,
            saved,
            dy,
            |layer, saved, dy, onto| match onto {
                Some(_) => Ok((Tensors::new(), layer.param_only_grad(saved, dy)?)),
                None => layer.input_grad(saved, dy),
            },
        )?;
        Ok(Pending {
            nested,
            ..Pending::default()
        })
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        if pending.nested.len() != self.layers.len() {
            let parts = pending.nested.len();
            return Err(foreign(&self.name, self.layers.len(), parts));
        }
        for (layer, pending) in self.layers.iter_mut().rev().zip(pending.nested) {
            layer.weight_grad(pending)?;
        }
        Ok(())
    }

    /// Frees the pending state of each layer before the next begins.
    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let layers = self.layers.iter_mut().rev();
        let (dx, _) = back(&self.name, layers, saved, dy, |layer, saved, dy, onto| {
            let dx = match onto {
                Some(onto) => layer.backward_onto(saved, dy, onto),
                None => layer.backward(saved, dy),
            };
            Ok((dx?, ()))
        })?;
        self.with_skip(dx)
    }

    fn begin_mini_batch(&mut self) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.begin_mini_batch())
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.commit_mini_batch())
    }

    fn merged_rows(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        self.layers
            .iter_mut()
            .for_each(|layer| layer.merged_rows(visit));
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        for layer in &mut self.layers {
            layer.params(visit);
        }
    }
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.adapt(which))
    }
}
