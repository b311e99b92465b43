//! A graph of layers, as one layer.

use std::sync::Arc;

use gpipe_tensor::Tensors;
use gpipe_tensor::ops::CacheSpan;

use super::flow::{Flows, foreign, times, unexpected};
use super::graph_walk::{Known, KnownTensors, OfFlows, OfTensors, back};
use super::sequential::Sequential;
use super::skip::Add;
use crate::cost::Inside;
use crate::wiring::{Value, Wiring};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, Ledger, LoraSettings, Memory, Origin, Param, PassContext,
    Pending, Result, Saved, TensorSet,
};

/// Layers that take outputs of each other, as one layer on the first tensors of the flow.
///
/// The layers run in the order in which they were added, and backward in the reverse order. A tensor that nothing
/// takes any more is freed at once. Gradients of a tensor that is taken several times are added from its last
/// use to its first; the gradient of one that nothing takes is zero. Sums and concatenations are layers.
///
/// ```
/// use gpipe_layers::layers::{Activation, Add, Function, Graph, Layout, Linear};
///
/// // From (s, skip) to (relu(A·s) + skip, s).
/// let mut cell = Graph::new("cell", 2);
/// let [s, skip] = [cell.input(0), cell.input(1)];
/// let a = cell.add(Linear::new("cell.a", 8, 8, Layout::OutIn), [s]);
/// let a = cell.add(Activation::new("cell.relu", Function::Relu), [a]);
/// let sum = cell.add(Add::new("cell.sum"), [a, skip]);
/// let cell = cell.returning([sum, s]);
/// ```
#[derive(Debug)]
pub struct Graph {
    name: String,
    wiring: Wiring,
    layers: Vec<Box<dyn Layer>>,
}

impl Graph {
    /// A graph on this many tensors, without layers.
    pub fn new(name: impl Into<String>, inputs: usize) -> Self {
        Self {
            name: name.into(),
            wiring: Wiring {
                inputs,
                ..Wiring::default()
            },
            layers: Vec::new(),
        }
    }

    /// The tensors at these places of the first `inputs` of the flow, in this order: each any number of times, and
    /// also none, by which a tensor is dropped; the gradient of one of floats is then zero.
    pub fn select(
        name: impl Into<String>,
        inputs: usize,
        places: impl IntoIterator<Item = usize>,
    ) -> Self {
        let graph = Self::new(name, inputs);
        let values: Vec<Value> = places.into_iter().map(|place| graph.input(place)).collect();
        graph.returning(values)
    }

    /// (f(x, sides) + g(x), sides), where f is `layers` and g is `shortcut`, or x itself without any, on the first
    /// tensor x of the flow and `sides` others, such as masks. Each layer takes one tensor, or as many sides more as
    /// its arity says, and returns one.
    pub fn residual(
        name: impl Into<String>,
        sides: usize,
        layers: Sequential,
        shortcut: Sequential,
    ) -> Self {
        let mut graph = Self::new(name, 1 + sides);
        let add = Add::new(format!("{}.add", graph.name));
        let x = graph.input(0);
        let sides: Vec<Value> = (1..=sides).map(|place| graph.input(place)).collect();
        let skip = graph.chain(shortcut, x, &sides);
        let y = graph.chain(layers, x, &sides);
        let y = graph.add(add, [y, skip]);
        graph.returning([y].into_iter().chain(sides))
    }

    /// The input at a place, counted from 0.
    pub fn input(&self, place: usize) -> Value {
        Value { source: 0, place }
    }

    /// Adds a layer on these values; its first output.
    pub fn add(
        &mut self,
        layer: impl Layer + 'static,
        inputs: impl IntoIterator<Item = Value>,
    ) -> Value {
        self.push(Box::new(layer), inputs.into_iter().collect())
    }

    /// Adds layers one after the other, the first on `x`; the output of the last. Each takes one tensor, or as many
    /// of `sides` more as its arity says, and returns one.
    pub fn chain(&mut self, layers: Sequential, x: Value, sides: &[Value]) -> Value {
        layers.into_layers().into_iter().fold(x, |x, layer| {
            let sides = sides.iter().take(layer.arity().saturating_sub(1));
            let inputs = [x].into_iter().chain(sides.copied()).collect();
            self.push(layer, inputs)
        })
    }

    /// The same with these values as its outputs, in place of any before.
    #[must_use]
    pub fn returning(mut self, outputs: impl IntoIterator<Item = Value>) -> Self {
        self.wiring.outputs = outputs.into_iter().collect();
        self
    }

    fn push(&mut self, layer: Box<dyn Layer>, inputs: Vec<Value>) -> Value {
        self.wiring.nodes.push(inputs);
        self.layers.push(layer);
        Value {
            source: self.layers.len(),
            place: 0,
        }
    }

    /// The costs of the layers inside, and the outputs.
    fn inside(&self, inputs: &[Flow]) -> Result<(Inside, Vec<Flow>)> {
        if inputs.len() != self.wiring.inputs {
            let expected = format!("{} tensors", self.wiring.inputs);
            return Err(unexpected(&self.name, expected, Flows(inputs)));
        }
        let mut costs = Vec::with_capacity(self.layers.len());
        let mut walk = OfFlows(&self.name);
        let outputs = self
            .wiring
            .forward(&mut walk, inputs.into(), |_, node, x| {
                let layer = &self.layers[node];
                if layer.arity() != x.len() {
                    return Err(Error::Config(format!(
                        "{}: {} takes {} tensors, not {}",
                        self.name,
                        layer.name(),
                        layer.arity(),
                        x.len()
                    )));
                }
                let cost = layer.cost(&x)?;
                let outputs = cost.outputs.as_slice().into();
                costs.push(cost);
                Ok(outputs)
            })?;
        let inside = Inside {
            wiring: self.wiring.clone(),
            costs,
            inputs: inputs.to_vec(),
            last_recomputed: None,
        };
        Ok((inside, outputs.into_vec()))
    }

    /// Elements and bytes of the sums of gradients.
    fn sums(&self, inside: &Inside) -> (u64, u64) {
        let taken = self
            .wiring
            .nodes
            .iter()
            .flatten()
            .chain(&self.wiring.outputs);
        let mut seen = Vec::new();
        let mut sums = (0_u64, 0_u64);
        for value in taken {
            let flow = &inside.flow(value.source)[value.place];
            if seen.contains(&value) && flow.dtype.is_float() {
                sums.0 = sums.0.saturating_add(flow.elements());
                sums.1 = sums.1.saturating_add(flow.bytes());
            }
            seen.push(value);
        }
        sums
    }

    /// The outputs, with what `run` leaves of each layer.
    fn run<S>(
        &self,
        x: Tensors,
        mut run: impl FnMut(usize, &dyn Layer, Tensors) -> Result<(Tensors, S)>,
    ) -> Result<(Tensors, Vec<S>, KnownTensors)> {
        if x.len() != self.wiring.inputs {
            let expected = format!("{} tensors", self.wiring.inputs);
            return Err(unexpected(&self.name, expected, x.len()));
        }
        let mut known = vec![x.iter().map(Known::of).collect()];
        let mut left = Vec::with_capacity(self.layers.len());
        let mut walk = OfTensors {
            name: &self.name,
            known: &[],
        };
        let y = self.wiring.forward(&mut walk, x, |_, node, x| {
            let (y, of_layer) = run(node, self.layers[node].as_ref(), x)?;
            known.push(y.iter().map(Known::of).collect());
            left.push(of_layer);
            Ok(y)
        })?;
        Ok((y, left, known))
    }
}

/// What a bound needs of the bytes of the layers inside: those that are saved, and which outputs are inputs.
fn memory(cost: &Cost, inputs: &[Flow]) -> Memory {
    let mut ledger = Ledger::new();
    let x = ledger.alloc_flow(inputs);
    let claims = ledger.hold_all(&x);
    let (y, saved) = ledger.forward(cost, x);
    let origin = |buffer| {
        let input = claims.iter().position(|claim| claim == buffer);
        input.map_or(Origin::New, Origin::Same)
    };
    let outputs = y.iter().map(origin).collect();
    let holders = |ledger: &Ledger| -> Vec<usize> {
        claims.iter().map(|claim| ledger.holders(claim)).collect()
    };
    let (live, before) = (ledger.live(), holders(&ledger));
    ledger.release_saved(saved);
    let after = holders(&ledger);
    let saved_inputs = (0..claims.len()).filter(|&place| after[place] < before[place]);
    Memory::new()
        .with_outputs(outputs)
        .with_saved_inputs(TensorSet::Only(saved_inputs.collect()))
        .with_saved_own(live.saturating_sub(ledger.live()))
}

impl Layer for Graph {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        self.wiring.inputs
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        self.wiring.handed_on()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let (inside, outputs) = self.inside(inputs)?;
        let (sums, sum_bytes) = self.sums(&inside);
        let total = |part: fn(&Cost) -> u64, more: u64| {
            let parts = inside.costs.iter().map(part);
            parts.fold(more, u64::saturating_add)
        };
        let cost = Cost::new(outputs)
            .with_flops(
                total(|cost| cost.forward, 0),
                total(|cost| cost.input_grad, sums),
                total(|cost| cost.weight_grad, 0),
            )
            .with_params(total(|cost| cost.params, 0))
            .with_traffic(total(|cost| cost.traffic, times(&[3, sum_bytes])));
        let floats = inside.floats();
        let of_node = |(node, cost): (usize, &Cost)| match self.wiring.needs_gradient(node, &floats)
        {
            true => cost.input_grad,
            false => cost.param_only_grad,
        };
        let param_only = inside.costs.iter().enumerate().map(of_node);
        let cost = Cost {
            param_only_grad: param_only.fold(0, u64::saturating_add),
            gathered: total(|cost| cost.gathered, 0),
            training_fault: (inside.costs.iter()).find_map(|cost| cost.training_fault.clone()),
            inside: Some(Arc::new(inside)),
            ..cost
        };
        let memory = memory(&cost, inputs);
        Ok(cost.with_memory(memory))
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let mut flops = 0_u64;
        let mut walk = OfFlows(&self.name);
        self.wiring
            .forward(&mut walk, inputs.into(), |_, node, x| {
                let layer = &self.layers[node];
                flops = flops.saturating_add(layer.lingvo(&x)?);
                Ok(layer.cost(&x)?.outputs.into())
            })?;
        Ok(flops)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let (y, nested, known) = self.run(x, |_, layer, x| layer.forward(cx, x))?;
        let saved = Saved {
            nested,
            ..Saved::default()
        };
        Ok((y, saved.with_value::<KnownTensors>(known)))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let caches = cache.nested(self.layers.len());
        let (y, ..) = self.run(x, |node, layer, x| {
            let y = layer.forward_cached(cx, x, span, &mut caches[node])?;
            Ok((y, ()))
        })?;
        Ok(y)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let mut nested = Vec::with_capacity(self.layers.len());
        let step = |node: usize, _, saved, dy| {
            let (dx, pending) = self.layers[node].input_grad(saved, dy)?;
            nested.push(pending);
            Ok(dx)
        };
        let dx = back(&self.name, &self.wiring, saved, dy, true, step)?;
        let pending = Pending {
            nested,
            ..Pending::default()
        };
        Ok((dx, pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let mut nested = Vec::with_capacity(self.layers.len());
        let step = |node: usize, needs_dx: bool, saved, dy| {
            let layer = &self.layers[node];
            if !needs_dx {
                nested.push(layer.param_only_grad(saved, dy)?);
                return Ok(Tensors::new());
            }
            let (dx, pending) = layer.input_grad(saved, dy)?;
            nested.push(pending);
            Ok(dx)
        };
        back(&self.name, &self.wiring, saved, dy, false, step)?;
        Ok(Pending {
            nested,
            ..Pending::default()
        })
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let (layers, parts) = (self.layers.len(), pending.nested.len());
        if layers != parts {
            return Err(foreign(&self.name, layers, parts));
        }
        let mut layers = self.layers.iter_mut().rev().zip(pending.nested);
        layers.try_for_each(|(layer, pending)| layer.weight_grad(pending))
    }

    /// Frees the pending state of each layer before the next begins.
    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let layers = &mut self.layers;
        back(
            &self.name,
            &self.wiring,
            saved,
            dy,
            true,
            |node, _, saved, dy| layers[node].backward(saved, dy),
        )
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
