//! Models that are described by numbers instead of built from layers.

use std::ops::Range;

use gpipe_layers::{Cost, Flow, Memory, TensorSet};

use super::request::Costed;
use crate::{ModelCosts, ParameterBytes, PlaceBytes, Result, Times, Work};

/// A layer as a list of numbers, over a whole batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Work of the forward pass.
    pub forward: f64,
    /// Work of the input gradient, which the first layer does not compute.
    pub input_grad: f64,
    /// Work of the weight gradient.
    pub weight_grad: f64,
    /// Bytes of its parameters' values; their gradients are as large.
    pub parameters: u64,
    /// Bytes of its optimizer state.
    pub optimizer: u64,
    /// Bytes that the backward pass needs besides the layer's input.
    pub saved: u64,
    /// Bytes handed on to the next layer.
    pub output: u64,
}

impl Described {
    /// The bytes of parameters, gradients and optimizer states.
    pub fn weights(layers: &[Self]) -> ParameterBytes {
        let weight = |layer: &Self| {
            vec![PlaceBytes {
                name: layer.name.clone(),
                value: layer.parameters,
                gradient: layer.parameters,
                optimizer: layer.optimizer,
                tied: false,
            }]
        };
        ParameterBytes::of_layers(layers.iter().map(weight).collect())
    }

    /// The costs of these layers for micro-batches of a batch of `batch` samples: each has its share of
    /// everything but parameters.
    ///
    /// # Errors
    /// If there is no layer or no sample.
    pub fn costed(layers: &[Self], batch: usize, micro_batches: &[Range<usize>]) -> Result<Costed> {
        let share = |bytes: u64, samples: usize| {
            let share = u128::from(bytes) * samples as u128 / batch.max(1) as u128;
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let flow = |bytes: u64| {
            let floats = share(bytes, 1).div_ceil(4);
            usize::try_from(floats).unwrap_or(usize::MAX)
        };
        // A budget weighs work in integers: billionths of the total.
        let all: f64 = layers.iter().map(|layer| layer.forward).sum();
        let whole = |work: f64| match all > 0.0 {
            true => (1e9 * work / all) as u64,
            false => 0,
        };
        let costs = |samples: usize| {
            let mut input = 0;
            let mut costs = Vec::with_capacity(layers.len());
            for layer in layers {
                let outputs = vec![Flow::f32([samples, flow(layer.output)])];
                let (out, own) = (outputs[0].bytes(), share(layer.saved, samples));
                let memory = Memory::new()
                    .with_saved_inputs(TensorSet::All)
                    .with_saved_own(own)
                    .with_pending_inputs(TensorSet::All)
                    .with_pending_grads(TensorSet::All)
                    .with_forward_peak(out.saturating_add(own))
                    .with_input_grad_peak(input);
                let cost = Cost::new(outputs).with_flops(whole(layer.forward), 0, 0);
                costs.push(cost.with_memory(memory));
                input = out;
            }
            (vec![Flow::f32([samples, 0])], costs)
        };
        let largest = micro_batches.iter().map(Range::len).max().unwrap_or(0);
        let part = largest as f64 / batch.max(1) as f64;
        let work = |layer: &Self| Work {
            forward: layer.forward * part,
            input_grad: layer.input_grad * part,
            weight_grad: layer.weight_grad * part,
            ..Work::default()
        };
        let mut work: Vec<Work> = layers.iter().map(work).collect();
        if let Some(first) = work.first_mut() {
            first.input_grad = 0.0;
        }
        Ok(Costed {
            costs: ModelCosts::of_costs(micro_batches, costs)?,
            times: Times {
                work,
                ..Times::default()
            },
            scheduling_times: None,
        })
    }
}
