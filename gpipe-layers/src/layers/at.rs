//! A layer that takes its tensors by position.

use std::sync::Arc;

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors};
use smallvec::SmallVec;

use super::flow::{Flows, foreign, unexpected};
use crate::cost::Inside;
use crate::wiring::{Value, Wiring};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, LoraSettings, Memory, Origin, Param, PassContext,
    Pending, Result, Saved, TensorSet,
};

/// A layer on the tensors at given places of the flow; its outputs take their places, in the same
/// order, and the others pass by.
///
/// ```
/// use gpipe_layers::layers::{Activation, Add, At, Fork, Function, Sequential};
///
/// // x + ReLU(x), with the ReLU in the branch that passes by.
/// let layers = Sequential::new()
///     .then(Fork::new("fork"))
///     .then(At::new([1], Activation::new("relu", Function::Relu)))
///     .then(Add::new("add"));
/// assert_eq!(layers.into_layers().len(), 3);
/// ```
#[derive(Debug)]
pub struct At {
    places: Vec<usize>,
    layer: Box<dyn Layer>,
}

impl At {
    /// `layer` on the tensors at these places, counted from 0, in this order.
    ///
    /// Places that are not different from each other, and another number of them than the layer takes and
    /// returns, are errors of [`cost`](Layer::cost).
    pub fn new(places: impl IntoIterator<Item = usize>, layer: impl Layer + 'static) -> Self {
        Self {
            places: places.into_iter().collect(),
            layer: Box::new(layer),
        }
    }

    /// Takes the tensors at the places out of a list.
    fn pick<T: Clone>(&self, given: &[T]) -> Option<Vec<T>> {
        self.places
            .iter()
            .map(|&place| given.get(place).cloned())
            .collect()
    }

    /// The layer as the only one of a graph, where others are inside it.
    fn inside(&self, inputs: &[Flow], cost: &Cost) -> Inside {
        let value = |source, place| Value { source, place };
        let output = |place| {
            let own = self.places.iter().position(|&at| at == place);
            own.map_or(value(0, place), |own| value(1, own))
        };
        Inside {
            last_recomputed: None,
            wiring: Wiring {
                inputs: inputs.len(),
                nodes: vec![self.places.iter().map(|&place| value(0, place)).collect()],
                outputs: (0..inputs.len()).map(output).collect(),
            },
            costs: vec![cost.clone()],
            inputs: inputs.to_vec(),
        }
    }

    fn wrong_count(&self, got: usize) -> Error {
        let expected = format!("{} tensors or more", self.arity());
        unexpected(self.name(), expected, got)
    }
}

/// Which tensors of the flow are floats, before and after the layer.
type Floats = (SmallVec<[bool; 4]>, SmallVec<[bool; 4]>);

fn floats(tensors: &[Tensor]) -> SmallVec<[bool; 4]> {
    tensors
        .iter()
        .map(|tensor| tensor.dtype().is_float())
        .collect()
}

/// Takes the tensors at `places` out; the others stay where they are.
fn take(places: &[usize], flow: Tensors) -> Option<(Tensors, SmallVec<[Option<Tensor>; 4]>)> {
    let mut others: SmallVec<[Option<Tensor>; 4]> = flow.into_iter().map(Some).collect();
    let taken = places.iter().map(|&place| others.get_mut(place)?.take());
    Some((taken.collect::<Option<Tensors>>()?, others))
}

/// Puts tensors where others were taken out.
fn put(places: &[usize], tensors: Tensors, mut others: SmallVec<[Option<Tensor>; 4]>) -> Tensors {
    for (&place, tensor) in places.iter().zip(tensors) {
        others[place] = Some(tensor);
    }
    others.into_iter().flatten().collect()
}

/// The places in a flow of gradients, which has one for each tensor of floats, of the tensors at `places`.
fn gradient_places(places: &[usize], is_float: &[bool]) -> Vec<usize> {
    let floats = places.iter().filter(|&&place| is_float[place]);
    let before = |&place: &usize| is_float[..place].iter().filter(|&&float| float).count();
    floats.map(before).collect()
}

/// The gradients of a flow, where `step` takes those at the layer's places and returns others.
fn back(
    name: &str,
    places: &[usize],
    mut saved: Saved,
    dy: Tensors,
    step: impl FnOnce(Saved, Tensors) -> Result<Tensors>,
) -> Result<Tensors> {
    let (before, after) = saved.take_value::<Floats>(name)?;
    let count = dy.len();
    let (to, from) = (
        gradient_places(places, &before),
        gradient_places(places, &after),
    );
    let own = saved.nested.pop().ok_or_else(|| foreign(name, 1, 0))?;
    let (dy, others) = take(&from, dy)
        .ok_or_else(|| unexpected(name, "a gradient for each tensor of floats", count))?;
    let mut dx = step(own, dy)?.into_iter();
    let mut passing = others.into_iter().flatten();
    let floats = before.iter().filter(|&&float| float).count();
    let next = |place: usize| match to.contains(&place) {
        true => None,
        false => passing.next(),
    };
    let mut all: SmallVec<[Option<Tensor>; 4]> = (0..floats).map(next).collect();
    for place in to {
        all[place] = dx.next();
    }
    Ok(all.into_iter().flatten().collect())
}

/// A set of places of the layer's own flow as places of the whole one.
fn moved(set: &TensorSet, places: &[usize]) -> TensorSet {
    let inside = places.iter().enumerate();
    let inside = inside.filter(|&(inner, _)| set.contains(inner));
    TensorSet::Only(inside.map(|(_, &place)| place).collect())
}

/// Origins of `count` tensors: those of the layer's own at `places`, and the same for the others.
fn origins(
    count: usize,
    places: &[usize],
    from: &[usize],
    inner: impl Fn(usize) -> Origin,
    passing: impl Fn(usize) -> usize,
) -> Vec<Origin> {
    let of = |place: usize| match places.iter().position(|&at| at == place) {
        None => Origin::Same(passing(place)),
        Some(at) => match inner(at) {
            Origin::New => Origin::New,
            Origin::Same(at) => from
                .get(at)
                .map_or(Origin::New, |&place| Origin::Same(place)),
            Origin::Over(at) => from
                .get(at)
                .map_or(Origin::New, |&place| Origin::Over(place)),
        },
    };
    (0..count).map(of).collect()
}

impl Layer for At {
    fn name(&self) -> &str {
        self.layer.name()
    }

    fn arity(&self) -> usize {
        let counts = self.places.iter().map(|place| place.saturating_add(1));
        counts.max().unwrap_or(0)
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        // A layer of other numbers of tensors is an error of `cost`.
        let place = |own: usize| self.places.get(own).copied();
        let inside = self.layer.handed_on().into_iter();
        let inside = inside.filter_map(|(from, to)| Some((place(from)?, place(to)?)));
        let others = (0..self.arity()).filter(|place| !self.places.contains(place));
        inside.chain(others.map(|place| (place, place))).collect()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let own = self.pick(inputs).filter(|_| inputs.len() == self.arity());
        let own = own.ok_or_else(|| {
            let expected = format!("{} tensors", self.arity());
            unexpected(self.name(), expected, Flows(inputs))
        })?;
        let unique = (1..self.places.len()).all(|i| !self.places[..i].contains(&self.places[i]));
        let cost = self.layer.cost(&own)?;
        if !unique || self.layer.arity() != own.len() || cost.outputs.len() != own.len() {
            return Err(Error::Config(format!(
                "{} takes {} tensors and returns {}: give At as many places, each once",
                self.name(),
                self.layer.arity(),
                cost.outputs.len()
            )));
        }
        let mut outputs = inputs.to_vec();
        for (&place, output) in self.places.iter().zip(&cost.outputs) {
            outputs[place] = output.clone();
        }
        let is_float = |flow: &[Flow]| flow.iter().map(|f| f.dtype.is_float()).collect::<Vec<_>>();
        let (before, after) = (is_float(inputs), is_float(&outputs));
        let (dx, dy) = (
            gradient_places(&self.places, &before),
            gradient_places(&self.places, &after),
        );
        let count = |floats: &[bool]| floats.iter().filter(|&&float| float).count();
        // The k-th gradient that passes by before the layer is the k-th that does after it.
        let passing = |place: usize| {
            let rank = (0..place).filter(|other| !dx.contains(other)).count();
            let mut others = (0..count(&after)).filter(|other| !dy.contains(other));
            others.nth(rank).unwrap_or(place)
        };
        let inner = &cost.memory;
        let memory = Memory {
            outputs: origins(
                outputs.len(),
                &self.places,
                &self.places,
                |k| inner.output(k),
                |place| place,
            ),
            gradients: origins(count(&before), &dx, &dy, |j| inner.gradient(j), passing),
            saved_inputs: moved(&inner.saved_inputs, &self.places),
            saved_outputs: moved(&inner.saved_outputs, &self.places),
            pending_inputs: moved(&inner.pending_inputs, &self.places),
            pending_grads: moved(&inner.pending_grads, &dy),
            // The types of the outputs are saved.
            recompute_peak: None,
            ..inner.clone()
        };
        let inside = cost.inside.is_some().then(|| self.inside(inputs, &cost));
        Ok(Cost {
            outputs,
            memory,
            inside: inside.map(Arc::new),
            recompute: None,
            ..cost
        })
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let own = self
            .pick(inputs)
            .ok_or_else(|| self.wrong_count(inputs.len()))?;
        self.layer.lingvo(&own)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let (count, before) = (x.len(), floats(&x));
        let (own, others) = take(&self.places, x).ok_or_else(|| self.wrong_count(count))?;
        let (y, saved) = self.layer.forward(cx, own)?;
        let y = put(&self.places, y, others);
        let left = Saved {
            nested: vec![saved],
            ..Saved::default()
        };
        let after = floats(&y);
        Ok((y, left.with_value::<Floats>((before, after))))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let count = x.len();
        let (own, others) = take(&self.places, x).ok_or_else(|| self.wrong_count(count))?;
        let y = self.layer.forward_cached(cx, own, span, cache)?;
        Ok(put(&self.places, y, others))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let mut left = None;
        let dx = back(self.name(), &self.places, saved, dy, |saved, dy| {
            let (dx, pending) = self.layer.input_grad(saved, dy)?;
            left = Some(pending);
            Ok(dx)
        })?;
        let pending = Pending {
            nested: left.into_iter().collect(),
            ..Pending::default()
        };
        Ok((dx, pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let mut left = None;
        back(self.name(), &self.places, saved, dy, |saved, dy| {
            left = Some(self.layer.param_only_grad(saved, dy)?);
            Ok(Tensors::new())
        })?;
        Ok(Pending {
            nested: left.into_iter().collect(),
            ..Pending::default()
        })
    }

    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let name = self.layer.name().to_owned();
        back(&name, &self.places, saved, dy, |saved, dy| {
            self.layer.backward(saved, dy)
        })
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        match pending.nested.pop() {
            Some(own) => self.layer.weight_grad(own),
            None => Err(foreign(self.layer.name(), 1, 0)),
        }
    }

    fn begin_mini_batch(&mut self) -> Result<()> {
        self.layer.begin_mini_batch()
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        self.layer.commit_mini_batch()
    }

    fn merged_rows(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        self.layer.merged_rows(visit);
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.layer.params(visit);
    }
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        self.layer.adapt(which)
    }
}
