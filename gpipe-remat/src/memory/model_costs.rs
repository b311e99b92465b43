//! Costs of the layers of a model: the common input of the partitioner, the simulator and the memory
//! prediction.

mod prices;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use gpipe_layers::{Cost, Flow, Layer};
use gpipe_sched::Groups;

use crate::reach::{LayerPlaces, Passage, passages};
use crate::{Error, ParameterBytes, Result};

pub(crate) use prices::recomputed_share;

/// The costs of every layer of a model, for each size of micro-batch of a batch.
#[derive(Clone, Debug)]
pub struct ModelCosts {
    /// Samples of the batch, of all replicas together.
    batch: usize,
    /// Samples of each micro-batch.
    sizes: Vec<usize>,
    /// Layer costs by samples: at most two sizes differ.
    layers: BTreeMap<usize, Costed>,
    places: Vec<LayerPlaces>,
    groups: Groups,
    /// The costs of the layers before the pipeline, for each group of this replica; empty without such layers.
    before: Vec<Costed>,
    /// Bytes of the gradients of each layer; empty for one group, which needs no further sums.
    gradients: Vec<u64>,
    first_trained: usize,
}

#[derive(Clone, Debug)]
struct Costed {
    /// One per layer.
    costs: Vec<Cost>,
    /// The input flow of each layer, and last the output flow of the model.
    flows: Vec<Vec<Flow>>,
}

impl Costed {
    fn check_training(&self) -> Result<()> {
        let mut faults = self
            .costs
            .iter()
            .filter_map(|cost| cost.training_fault.clone());
        match faults.next() {
            Some(fault) => Err(gpipe_layers::Error::Config(fault).into()),
            None => Ok(()),
        }
    }
}

impl ModelCosts {
    /// Bytes that an update reads and writes per parameter: AdamW reads and writes the value and two moments,
    /// the norm and AdamW read the gradient, and the next step begins by writing zeros to it.
    pub(crate) const UPDATE_BYTES: u64 = 9 * 4;

    /// The costs of `layers` for a batch that is split into `micro_batches`. `input` returns the input
    /// flow of the first layer for a number of samples.
    ///
    /// # Errors
    /// If a layer cannot take the output flow of the one before it, or not in training ([`Cost::training_fault`]).
    pub fn new(
        layers: &[Box<dyn Layer>],
        micro_batches: &[Range<usize>],
        input: impl Fn(usize) -> Vec<Flow>,
    ) -> Result<Self> {
        let costs = Self::for_evaluation(layers, micro_batches, input)?;
        costs.layers.values().try_for_each(Costed::check_training)?;
        Ok(costs)
    }

    /// [`new`](Self::new) for evaluations alone: layers may refuse such inputs in training.
    ///
    /// # Errors
    /// If a layer cannot take the output flow of the one before it.
    pub fn for_evaluation(
        layers: &[Box<dyn Layer>],
        micro_batches: &[Range<usize>],
        input: impl Fn(usize) -> Vec<Flow>,
    ) -> Result<Self> {
        let sizes: Vec<usize> = micro_batches.iter().map(|samples| samples.len()).collect();
        let mut costed = BTreeMap::new();
        for &samples in &sizes {
            if let Entry::Vacant(vacant) = costed.entry(samples) {
                vacant.insert(price(layers, input(samples))?);
            }
        }
        if sizes.is_empty() || layers.is_empty() {
            return Err(no_cost());
        }
        let places = layers.iter().map(|layer| LayerPlaces::of(layer.as_ref()));
        Ok(Self {
            groups: Groups::one(sizes.len()),
            before: Vec::new(),
            gradients: Vec::new(),
            batch: sizes.iter().copied().fold(0, usize::saturating_add),
            sizes,
            layers: costed,
            places: places.collect(),
            first_trained: 0,
        })
    }

    /// Imported costs: `costs` returns, for a number of samples, the input flow of the first layer and
    /// the cost of each layer. Every layer takes one tensor.
    ///
    /// # Errors
    /// If there is no micro-batch or no layer, or `costs` returns other numbers of layers for other numbers of samples.
    pub fn of_costs(
        micro_batches: &[Range<usize>],
        costs: impl Fn(usize) -> (Vec<Flow>, Vec<Cost>),
    ) -> Result<Self> {
        let sizes: Vec<usize> = micro_batches.iter().map(|samples| samples.len()).collect();
        let mut layers = BTreeMap::new();
        for &samples in &sizes {
            if let Entry::Vacant(vacant) = layers.entry(samples) {
                let (input, costs) = costs(samples);
                let outputs = costs.iter().map(|cost| cost.outputs.clone());
                let flows = [input].into_iter().chain(outputs).collect();
                vacant.insert(Costed { costs, flows });
            }
        }
        let count = |costed: &Costed| costed.costs.len();
        let most = layers.values().map(count).max().unwrap_or(0);
        if most == 0 {
            return Err(no_cost());
        }
        if let Some(fewer) = layers.values().map(count).find(|&count| count < most) {
            return Err(Error::Assembly(format!(
                "costs of {most} and of {fewer} layers: give as many for each number of samples"
            )));
        }
        Ok(Self {
            groups: Groups::one(sizes.len()),
            before: Vec::new(),
            gradients: Vec::new(),
            batch: sizes.iter().copied().fold(0, usize::saturating_add),
            sizes,
            layers,
            places: vec![LayerPlaces::one(); most],
            first_trained: 0,
        })
    }

    /// The same without backward passes of the first layers, up to the first one with a parameter that is not frozen.
    /// `weights` are the model's. A model of which nothing trains keeps all of its backward passes.
    ///
    /// A [`RematPlan`](crate::RematPlan) of these costs, and memory and times that are predicted from them and that plan, leave out what
    /// such layers need not compute and keep.
    #[must_use]
    pub fn with_frozen(self, weights: &ParameterBytes) -> Self {
        Self {
            first_trained: weights.first_trained(),
            ..self
        }
    }

    /// The same with backward passes from this layer on.
    pub(crate) fn trained_from(&self, first_trained: usize) -> Cow<'_, Self> {
        match first_trained == self.first_trained {
            true => Cow::Borrowed(self),
            false => Cow::Owned(Self {
                first_trained,
                ..self.clone()
            }),
        }
    }

    /// The first layer that has a backward pass.
    pub fn first_trained(&self) -> usize {
        self.first_trained
    }

    /// Whether the tensors of the flow that enters `layer` are owed gradients: some layer before it trains. Of the
    /// number of layers, the model's output.
    pub fn owes_gradients(&self, layer: usize) -> bool {
        layer > self.first_trained
    }

    /// The same with micro-batches in `groups` groups ([`Groups`]), whose sums of gradients are held
    /// beside each other. Memory that is predicted from these costs counts them, and a [`RematPlan`] of
    /// these costs makes the stages add in this order. `weights` are the model's.
    ///
    /// # Errors
    /// If there are no groups, or more than micro-batches.
    ///
    /// [`RematPlan`]: crate::RematPlan
    pub fn with_groups(self, groups: usize, weights: &ParameterBytes) -> Result<Self> {
        let micro_batches = self.micro_batches();
        let groups = Groups::new(micro_batches, groups).ok_or(Error::Groups {
            groups,
            micro_batches,
        })?;
        let layers = match groups.count() {
            1 => 0..0,
            _ => 0..self.layers(),
        };
        Ok(Self {
            gradients: layers.map(|layer| weights.gradients(layer)).collect(),
            groups,
            ..self
        })
    }

    /// The costs of one of several replicas of the pipeline, which has as many of the groups as the others
    /// ([`Groups::on_replica`]); call it after [`with_groups`](Self::with_groups).
    ///
    /// # Errors
    /// If the replicas do not divide the groups, or there are not as many.
    pub fn on_replica(mut self, replica: usize, replicas: usize) -> Result<Self> {
        if replica >= replicas {
            return Err(Error::Assembly(format!(
                "replica {replica} of {replicas}: use 1 replica or more, and count them from 0"
            )));
        }
        let count = self.groups.count();
        self.groups = self.groups.on_replica(replica, replicas).ok_or_else(|| {
            Error::Assembly(format!(
                "{replicas} replicas but {count} groups of micro-batches: use as many groups, or a multiple"
            ))
        })?;
        self.sizes = self.sizes[self.groups.own_micro_batches()].to_vec();
        Ok(self)
    }

    /// The same with the first `before` layers before the pipeline (Lingvo's `before_tpl`): they run on the samples
    /// of a whole group at once, forward before its first micro-batch and backward after its last. `layers` and
    /// `input` are those of [`new`](Self::new); call it after [`with_groups`](Self::with_groups) and
    /// [`on_replica`](Self::on_replica).
    ///
    /// # Errors
    /// If a layer cannot take the samples of a group, or what they return has another number of rows.
    pub fn with_before(
        self,
        before: usize,
        layers: &[Box<dyn Layer>],
        input: impl Fn(usize) -> Vec<Flow>,
    ) -> Result<Self> {
        if before == 0 {
            return Ok(self);
        }
        if before >= layers.len() {
            return Err(Error::Assembly(format!(
                "{before} layers before the pipeline of a model of {}: leave one for the pipeline",
                layers.len()
            )));
        }
        let price_of = |group: usize| {
            let members = self.groups.micro_batches(group);
            let samples = members.map(|m| self.sizes[m]).sum();
            let costed = price(&layers[..before], input(samples))?;
            let outputs = costed.flows.last().into_iter().flatten();
            match outputs
                .map(|flow| flow.shape.rows())
                .find(|&rows| rows != samples)
            {
                Some(rows) => Err(Error::Assembly(format!(
                    "{}: {rows} rows of {samples} samples: a layer before the pipeline returns a row for each",
                    layers[before - 1].name()
                ))),
                None => Ok(costed),
            }
        };
        let before = self.groups.own().map(price_of);
        Ok(Self {
            before: before.collect::<Result<_>>()?,
            ..self
        })
    }

    /// Number of layers before the pipeline.
    pub fn before(&self) -> usize {
        self.before.first().map_or(0, |group| group.costs.len())
    }

    /// The costs of the layers before the pipeline for a group of this replica's micro-batches.
    pub fn of_group(&self, group: usize) -> &[Cost] {
        &self.before[group - self.groups.own().start].costs
    }

    /// The input flow of a layer before the pipeline for a group; for `layer` = their number, their output.
    pub(crate) fn flow_of_group(&self, group: usize, layer: usize) -> &[Flow] {
        &self.before[group - self.groups.own().start].flows[layer]
    }

    /// The groups of the micro-batches.
    pub fn groups(&self) -> Groups {
        self.groups
    }

    /// Bytes of a further sum of the gradients of these layers.
    pub(crate) fn gradients(&self, layers: Range<usize>) -> u64 {
        let gradients = self.gradients.get(layers).unwrap_or_default();
        gradients
            .iter()
            .fold(0, |sum, &one| sum.saturating_add(one))
    }

    /// Number of micro-batches.
    pub fn micro_batches(&self) -> usize {
        self.sizes.len()
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.places.len()
    }

    /// Number of samples of the batch, of all replicas together.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Number of samples of micro-batch `m`.
    ///
    /// # Panics
    /// For a micro-batch that is not there.
    pub fn samples(&self, m: usize) -> usize {
        self.sizes[m]
    }

    /// The layers' costs for micro-batch `m`.
    ///
    /// # Panics
    /// For a micro-batch that is not there.
    pub fn of(&self, m: usize) -> &[Cost] {
        &self.layers[&self.sizes[m]].costs
    }

    /// The input flow of `layer` for micro-batch `m`; for `layer` = number of layers, the model's output.
    ///
    /// # Panics
    /// For a micro-batch or a layer that is not there.
    pub fn flow(&self, m: usize, layer: usize) -> &[Flow] {
        &self.layers[&self.sizes[m]].flows[layer]
    }

    /// How many tensors of the flow each layer takes.
    pub(crate) fn arity(&self, layer: usize) -> usize {
        self.places[layer].arity
    }

    /// How a layer treats the places of the flow.
    pub(crate) fn places(&self, layer: usize) -> &LayerPlaces {
        &self.places[layer]
    }

    /// The way of every tensor that crosses a boundary of stages of this cut, from the stage that gives it to the
    /// next that touches it, by taker and place. Where `taker` is more than `giver` + 1, the tensor passes the
    /// stages between untouched.
    pub fn passages(&self, cut: &[Range<usize>]) -> Vec<Passage> {
        let outputs: Vec<usize> = self.of(0).iter().map(|cost| cost.outputs.len()).collect();
        passages(&self.places, &outputs, self.flow(0, 0).len(), cut)
    }
}

fn no_cost() -> Error {
    Error::Assembly("a model without layers or a batch without samples has no cost".into())
}

/// The cost of every layer, each on the output flow of the one before it.
fn price(layers: &[Box<dyn Layer>], mut flow: Vec<Flow>) -> Result<Costed> {
    let mut costs = Vec::with_capacity(layers.len());
    let mut flows = vec![flow.clone()];
    for layer in layers {
        let taken = layer.arity().min(flow.len());
        let cost = layer.cost(&flow[..taken])?;
        let passing = flow.split_off(taken);
        flow = cost.outputs.clone();
        flow.extend(passing);
        flows.push(flow.clone());
        costs.push(cost);
    }
    Ok(Costed { costs, flows })
}
