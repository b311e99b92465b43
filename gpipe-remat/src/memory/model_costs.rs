//! The one place that turns layer costs into what the partitioner, the simulator and the memory
//! prediction read.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use gpipe_layers::{Cost, CostModel, Flow, Layer};

use crate::{Error, Result};

/// What every layer of a model costs, for micro-batches of each size that a batch is cut into.
#[derive(Clone, Debug)]
pub struct ModelCosts {
    /// Samples of each micro-batch.
    sizes: Vec<usize>,
    /// Layer costs by samples: at most two sizes differ.
    layers: BTreeMap<usize, Costed>,
    arities: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Costed {
    /// One a layer.
    costs: Vec<Cost>,
    /// What enters each layer, and last what leaves the model.
    flows: Vec<Vec<Flow>>,
}

impl ModelCosts {
    /// Prices `layers` for a batch that is cut into `micro_batches`. `input` is the flow that the
    /// first layer takes for a number of samples.
    ///
    /// # Errors
    /// If a layer cannot take what the one before it hands on.
    pub fn new(
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
        let arities = layers.iter().map(|layer| layer.arity()).collect();
        Ok(Self {
            sizes,
            layers: costed,
            arities,
        })
    }

    /// Costs that are known from elsewhere: `costs` gives, for a number of samples, the flow that
    /// enters the first layer and what each layer costs. Every layer takes one tensor.
    ///
    /// # Errors
    /// If there is no micro-batch or no layer.
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
        let count = layers
            .values()
            .next()
            .map_or(0, |costed| costed.costs.len());
        if count == 0 {
            return Err(no_cost());
        }
        Ok(Self {
            sizes,
            layers,
            arities: vec![1; count],
        })
    }

    /// Number of micro-batches.
    pub fn micro_batches(&self) -> usize {
        self.sizes.len()
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.arities.len()
    }

    /// Number of samples of micro-batch `m`.
    pub fn samples(&self, m: usize) -> usize {
        self.sizes[m]
    }

    /// The layers' costs for micro-batch `m`.
    pub fn of(&self, m: usize) -> &[Cost] {
        &self.layers[&self.sizes[m]].costs
    }

    /// The flow of micro-batch `m` into `layer`; out of the model for the number of layers.
    pub fn flow(&self, m: usize, layer: usize) -> &[Flow] {
        &self.layers[&self.sizes[m]].flows[layer]
    }

    /// How many tensors of the flow each layer takes.
    pub(crate) fn arity(&self, layer: usize) -> usize {
        self.arities[layer]
    }

    /// FLOPs of each layer over the whole batch, forward and both gradients.
    pub fn flops(&self) -> Vec<u64> {
        let mut flops = vec![0u64; self.arities.len()];
        for m in 0..self.micro_batches() {
            for (total, cost) in flops.iter_mut().zip(self.of(m)) {
                *total = total.saturating_add(cost.flops());
            }
        }
        flops
    }

    /// What `model` charges for each of the layers that this was made of, over the whole batch:
    /// what a partitioner balances.
    ///
    /// # Errors
    /// If Lingvo has no formula for a layer.
    pub fn prices(&self, layers: &[Box<dyn Layer>], model: CostModel) -> Result<Vec<u64>> {
        let mut prices = vec![0u64; layers.len()];
        for (samples, costed) in &self.layers {
            let times = self.sizes.iter().filter(|size| *size == samples).count() as u64;
            for (index, (total, layer)) in prices.iter_mut().zip(layers).enumerate() {
                let inputs = &costed.flows[index][..self.arities[index]];
                let price = model.price(layer.as_ref(), inputs)?;
                *total = total.saturating_add(price.saturating_mul(times));
            }
        }
        Ok(prices)
    }
}

fn no_cost() -> Error {
    Error::Assembly("a model without layers or a batch without samples has no cost".into())
}

/// The cost of every layer, each fed with what the one before it hands on.
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
