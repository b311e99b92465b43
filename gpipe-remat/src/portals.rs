//! Portals: tensors that pass whole stages go straight from the stage that gives them to the one that takes
//! them (torchgpipe, <https://arxiv.org/abs/2004.09910>, section 3.3).

use std::ops::Range;

use gpipe_layers::Flow;
use gpipe_sched::{Portal, Schedule};

use crate::ModelCosts;
use crate::reach::Reach;

/// The portals of a model under a cut.
///
/// A tensor that no layer of at least one whole stage touches is not in the flows to and from that stage,
/// and neither is its gradient. A model's input counts as given by the first stage, its output as taken by
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portals {
    tensors: Vec<PortalTensor>,
    /// The flow that enters each stage, and last the model's output; empty without portals.
    boundaries: Vec<Vec<Place>>,
}

/// A tensor that goes through a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortalTensor {
    pub portal: Portal,
    /// Whether a gradient comes back.
    pub has_gradient: bool,
    /// The layer that follows the giver, and the tensor's place in the input flow of that.
    given_at: (usize, usize),
}

/// A place of the flow over a boundary of stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the tensor that goes through a portal instead.
    pub portal: Option<usize>,
    /// Whether the tensor is of floats: a flow of gradients then has one for it.
    pub is_float: bool,
}

impl Portals {
    /// Those of a model of these costs, cut into `cut`, which covers all layers.
    pub fn new(costs: &ModelCosts, cut: &[Range<usize>]) -> Self {
        let several = (0..costs.layers()).any(|layer| costs.flow(0, layer).len() > 1);
        let (true, Some(last)) = (several, cut.len().checked_sub(1)) else {
            return Self::default();
        };
        let ends = cut.iter().map(|part| part.end);
        let first_layers: Vec<usize> = [0].into_iter().chain(ends).collect();
        let places = |&layer: &usize| -> Vec<Place> {
            let flow = costs.flow(0, layer).iter();
            flow.map(|flow| Place {
                portal: None,
                is_float: flow.dtype.is_float(),
            })
            .collect()
        };
        let mut boundaries: Vec<Vec<Place>> = first_layers.iter().map(places).collect();
        let mut tensors = Vec::new();
        for passage in costs.passages(cut) {
            let (from, to) = (passage.giver, passage.taker.min(last));
            if to < from + 2 {
                continue;
            }
            let places = passage.places;
            tensors.push(PortalTensor {
                portal: Portal { from, to },
                has_gradient: boundaries[from + 1][places[0]].is_float
                    && costs.owes_gradients(first_layers[from + 1]),
                given_at: (first_layers[from + 1], places[0]),
            });
            for (boundary, place) in (from + 1..=to).zip(places) {
                boundaries[boundary][place].portal = Some(tensors.len() - 1);
            }
        }
        match tensors.is_empty() {
            true => Self::default(),
            false => Self {
                tensors,
                boundaries,
            },
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The ends of each portal, ascending, each once.
    pub fn ends(&self) -> Vec<Portal> {
        let mut ends: Vec<Portal> = self.tensors.iter().map(|tensor| tensor.portal).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Bytes of micro-batch `m` that go through a portal, of the activations and of their gradients.
    pub fn bytes(&self, costs: &ModelCosts, m: usize, portal: Portal) -> [u64; 2] {
        let tensors = self.tensors.iter().filter(|one| one.portal == portal);
        tensors.fold([0, 0], |sum, tensor| {
            let (layer, place) = tensor.given_at;
            added(
                sum,
                costs.flow(m, layer)[place].bytes(),
                tensor.has_gradient,
            )
        })
    }

    /// Bytes of the first micro-batch in the flows between a stage, whose first layer is `layer`, and the one before
    /// it: of the activations and of their gradients.
    pub fn flow_bytes(&self, costs: &ModelCosts, stage: usize, layer: usize) -> [u64; 2] {
        let places = self.boundaries.get(stage).map_or(&[][..], Vec::as_slice);
        let portals = places.iter().map(|place| place.portal.is_some());
        let flow = costs.flow(0, layer).iter();
        let sent = flow.zip(portals.chain(std::iter::repeat(false)));
        let owed = costs.owes_gradients(layer);
        sent.filter(|(_, portal)| !portal)
            .fold([0, 0], |bytes, (flow, _)| {
                added(bytes, flow.bytes(), owed && flow.dtype.is_float())
            })
    }

    /// Bytes that go through a portal in a training step, in both directions.
    pub fn step_bytes_of(&self, costs: &ModelCosts, portal: Portal) -> u64 {
        let of_micro_batches =
            (0..costs.micro_batches()).flat_map(|m| self.bytes(costs, m, portal));
        of_micro_batches.fold(0, u64::saturating_add)
    }

    /// Bytes that go through all portals in a training step.
    pub fn step_bytes(&self, costs: &ModelCosts) -> u64 {
        let portals = self.ends().into_iter();
        portals
            .map(|portal| self.step_bytes_of(costs, portal))
            .fold(0, u64::saturating_add)
    }

    /// Bytes that suffice for everything in transit through a portal at a time, however long the actions of
    /// `schedule` take: for each direction, as many micro-batches as can be in it.
    pub fn transit_bytes_of(&self, costs: &ModelCosts, schedule: &Schedule, portal: Portal) -> u64 {
        let slots = schedule.portal_slots(portal);
        // The first micro-batch is the largest.
        let bytes = self.bytes(costs, 0, portal);
        let directions = [0, 1].map(|way| bytes[way].saturating_mul(slots[way] as u64));
        directions.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes that suffice for everything in transit through all portals at a time.
    pub fn transit_bytes(&self, costs: &ModelCosts, schedule: &Schedule) -> u64 {
        let portals = self.ends().into_iter();
        portals
            .map(|portal| self.transit_bytes_of(costs, schedule, portal))
            .fold(0, u64::saturating_add)
    }

    /// The tensors, by their indices in [`Place::portal`].
    pub(crate) fn tensors(&self) -> &[PortalTensor] {
        &self.tensors
    }

    /// The flow that enters a stage; for the number of stages, the model's output.
    pub(crate) fn boundary(&self, stage: usize) -> &[Place] {
        &self.boundaries[stage]
    }
}

/// The bytes of activations and gradients with a further tensor.
fn added([forward, backward]: [u64; 2], bytes: u64, has_gradient: bool) -> [u64; 2] {
    let gradient = if has_gradient { bytes } else { 0 };
    [
        forward.saturating_add(bytes),
        backward.saturating_add(gradient),
    ]
}

/// A flow in which tensors that pass have no elements.
pub(crate) fn present(flow: &[Flow], passing: &[bool]) -> Vec<Flow> {
    let passes = passing.iter().copied().chain(std::iter::repeat(false));
    let here = flow.iter().zip(passes).map(|(flow, passes)| match passes {
        true => Flow {
            shape: [0].into(),
            dtype: flow.dtype,
        },
        false => flow.clone(),
    });
    here.collect()
}

/// For each layer of `part` and the one behind it, for each tensor of its input flow, whether it passes a stage of
/// these layers through a portal. Stages that take the model's input or give its output are not passed.
pub(crate) fn passing(costs: &ModelCosts, part: &Range<usize>) -> Vec<Vec<bool>> {
    let mut reach = Reach::new(costs.flow(0, part.start).len());
    let mut origins = vec![reach.origins().to_vec()];
    for layer in part.clone() {
        reach.pass(costs.places(layer), costs.of(0)[layer].outputs.len());
        origins.push(reach.origins().to_vec());
    }
    let between = part.start > 0 && part.end < costs.layers();
    let passes = |origin: Option<usize>| between && origin.is_some_and(|i| !reach.touched()[i]);
    let passes = origins
        .into_iter()
        .map(|flow| flow.into_iter().map(passes).collect());
    passes.collect()
}
