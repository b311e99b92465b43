//! Lower bounds of a stage's work within a time and a memory.

use std::ops::Range;

use gpipe_layers::Origin;
use gpipe_partition::search::{bisect, pack};
use gpipe_sched::Op;

use super::candidate::Candidate;
use crate::Policy;
use crate::memory::model_costs::recomputed_share;

/// For each stage, numbers or times of its forward passes, input and weight gradients.
pub(super) type Thirds = Vec<[f64; 3]>;

/// The recomputed work of a stage, as a difference of prefix sums from which `free` is taken.
pub(super) struct Recompute {
    pub prefix: Vec<f64>,
    pub free: f64,
}

impl Recompute {
    /// The prefix sum up to a layer.
    pub fn up_to(&self, end: usize) -> f64 {
        self.prefix.get(end).copied().unwrap_or(0.0)
    }

    /// The recomputed work of these layers; negative if everything is kept.
    pub fn of(&self, start: usize, end: usize) -> f64 {
        self.up_to(end) - self.up_to(start) - self.free
    }
}

/// Prefix sums of a model, and the limits of a candidate.
pub(super) struct StageBounds<'a> {
    candidate: &'a Candidate<'a>,
    /// The most work of a stage in a step that is fast enough.
    most: f64,
    memory: Option<Memory>,
    /// Runs of layers that [`is_possible`](Self::is_possible) was asked about.
    #[cfg(test)]
    pub looked_at: std::cell::Cell<u64>,
}

/// Lower bounds of a stage's bytes.
struct Memory {
    /// The limit of a stage.
    limit: f64,
    /// Prefix sums over the layers: bytes of parameters, gradients and optimizer states, and the bytes
    /// that only a kept layer holds of the smallest micro-batch.
    fixed: Vec<f64>,
    left: Vec<f64>,
    /// The least recomputed work per byte that is not kept.
    work_a_byte: f64,
    /// Micro-batches in flight on each stage; none if they depend on the cut.
    in_flight: Vec<f64>,
}

impl<'a> StageBounds<'a> {
    /// Bounds for steps with less than `most` work on any worker.
    pub fn new(candidate: &'a Candidate<'a>, most: f64) -> Self {
        Self {
            candidate,
            most,
            memory: Memory::of(candidate),
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    pub fn layers(&self) -> usize {
        self.candidate.layers()
    }

    /// Work of forward pass, input and weight gradient of a full micro-batch.
    pub fn work(&self, part: &Range<usize>) -> [f64; 3] {
        self.candidate.bounds.thirds(part)
    }

    /// Whether a stage of these layers may be part of a step that is fast enough. If not, no longer run is.
    pub fn is_possible(&self, part: &Range<usize>) -> bool {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
        let fits =
            |memory: &Memory| memory.fixed[part.end] - memory.fixed[part.start] <= memory.limit;
        self.candidate.bounds.critical_path(part) <= self.most
            && self.memory.as_ref().is_none_or(fits)
    }

    /// The cost of all layers up to `end` where a forward pass and the gradients have these prices.
    pub fn priced(&self, prices: &[f64; 3], end: usize) -> f64 {
        let work = self.work(&(0..end));
        prices
            .iter()
            .zip(work)
            .map(|(price, work)| price * work)
            .sum()
    }

    /// The work that a stage of a schedule with known orders recomputes, as
    /// [`again`](Self::again), at this price.
    pub fn recompute(&self, stage: usize, price: f64) -> Recompute {
        let Some((memory, in_flight)) = self
            .memory
            .as_ref()
            .and_then(|memory| Some((memory, *memory.in_flight.get(stage)?)))
        else {
            return Recompute {
                prefix: Vec::new(),
                free: 0.0,
            };
        };
        let a_byte = price * memory.work_a_byte;
        let bytes = memory.left.iter().zip(&memory.fixed);
        Recompute {
            prefix: bytes
                .map(|(left, fixed)| a_byte * (left + fixed / in_flight))
                .collect(),
            free: a_byte * memory.limit / in_flight,
        }
    }

    /// Lower bound of the recomputed work of a stage of these layers per full micro-batch; `None` if it
    /// does not fit.
    pub fn again(&self, stage: usize, part: &Range<usize>) -> Option<f64> {
        let Some(memory) = &self.memory else {
            return Some(0.0);
        };
        let in_flight = match memory.in_flight.get(stage) {
            Some(&known) => known,
            None => self.residence(part),
        };
        let of = |sums: &[f64]| sums[part.end] - sums[part.start];
        let free = memory.limit - of(&memory.fixed);
        let short = of(&memory.left) - free / in_flight;
        match free < 0.0 || short > of(&memory.left) {
            true => None,
            false => Some(short.max(0.0) * memory.work_a_byte),
        }
    }

    /// Lower bound of the micro-batches in flight on a stage of these layers: each is in flight from its
    /// forward pass until it returns, and all of them within the step.
    fn residence(&self, part: &Range<usize>) -> f64 {
        let [down, up, _] = self.work(&(part.start..self.layers()));
        let whole = self.candidate.bounds.sizes() * (down + up);
        (whole / self.most).ceil().max(1.0)
    }

    /// The minimum over all cuts of the longest path of a stage, as
    /// [`Bounds::critical_path`](super::bound::Bounds::critical_path) and
    /// [`Bounds::held_path`](super::bound::Bounds::held_path), plus its recomputed work.
    pub fn longest_critical_path(&self) -> f64 {
        let (layers, stages) = (self.layers(), self.candidate.stages());
        let sizes = self.candidate.bounds.sizes();
        let way = |stage: usize, part: &Range<usize>| {
            let again = self.again(stage, part)?;
            let bounds = &self.candidate.bounds;
            let back = self.candidate.held();
            let back = back.map_or(0.0, |held| bounds.held_path(part, held));
            Some(bounds.critical_path(part).max(back) + sizes * again)
        };
        let within = |limit: f64| {
            let fits =
                |stage, part: Range<usize>| way(stage, &part).is_some_and(|way| way <= limit);
            pack(0..layers, stages, fits).map(|_| limit)
        };
        if within(self.most).is_none() {
            return self.most;
        }
        let (low, _) = bisect(0.0, self.most, 50, within);
        low
    }
}

impl Memory {
    /// `None` if memory is unlimited, or if the kept tensors differ between micro-batches or are
    /// recomputed ahead.
    fn of(candidate: &Candidate<'_>) -> Option<Self> {
        let request = candidate.request;
        let is_even = |policy: &Policy| matches!(policy, Policy::Keep | Policy::Budget(_));
        let mut actions = candidate.schedule.lanes().iter().flatten();
        let ahead = actions.any(|action| action.op == Op::Recompute);
        if ahead || !request.policies.iter().all(is_even) {
            return None;
        }
        let limits = request.workers.iter().map(|worker| worker.memory);
        let limit = limits.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let costs = &candidate.costed.costs;
        let sizes = 0..costs.micro_batches();
        let smallest = sizes.min_by_key(|&m| costs.samples(m))?;
        let (mut fixed, mut left) = (vec![0.0], vec![0.0]);
        let mut work_a_byte = f64::INFINITY;
        let mut a_byte = |work: f64, bytes: f64| {
            if bytes > 0.0 {
                work_a_byte = work_a_byte.min(work / bytes);
            }
        };
        // Forward pass and own bytes of the layer before.
        let mut before = None;
        for layer in 0..candidate.layers() {
            let of = &costs.of(smallest);
            let memory = &of[layer].memory;
            // Outputs and tensors that pass by count at the layer that made them.
            let is_new = |place: usize| match layer.checked_sub(1).map(|before| &of[before]) {
                None => true,
                Some(before) => {
                    let origin = before.memory.output(place);
                    place < before.outputs.len() && !matches!(origin, Origin::Same(_))
                }
            };
            let taken = costs.flow(smallest, layer).iter().take(costs.arity(layer));
            let input: u64 = taken
                .enumerate()
                .filter(|(place, _)| memory.saved_inputs.contains(*place) && is_new(*place))
                .map(|(_, flow)| flow.bytes())
                .sum();
            let [own, input] = match costs.owes_gradients(layer + 1) {
                true => [memory.saved_own as f64, input as f64],
                false => [0.0; 2],
            };
            if costs.owes_gradients(layer + 1) {
                // The input of the first layer of a run is kept; that of another one is made by all of the forward pass of
                // the layer before, and what the last one saves by a part of its own.
                if let Some((forward, own)) = before {
                    a_byte(forward, own + input);
                }
                let [forward, ..] = candidate.bounds.thirds(&(layer..layer + 1));
                a_byte(forward * recomputed_share(&costs.of(0)[layer]), own);
                before = Some((forward, own));
            }
            left.push(left[layer] + own + input);
            let weights = request.weights.of_stage(layer..layer + 1);
            fixed.push(fixed[layer] + weights.fixed() as f64);
        }
        let schedule = &candidate.schedule;
        let most_at_once = |stage: usize| {
            let (mut now, mut most) = (0_i64, 1);
            for action in schedule.of_stage(stage) {
                match action.op {
                    Op::Forward => now += 1,
                    Op::Backward | Op::InputGrad => now -= 1,
                    Op::WeightGrad | Op::Recompute => {}
                }
                most = most.max(now);
            }
            most as f64
        };
        Some(Self {
            limit: (limit / candidate.chunks() as u64) as f64,
            fixed,
            left,
            // Nothing is recomputed if no byte can be saved.
            work_a_byte: if work_a_byte.is_finite() {
                work_a_byte
            } else {
                0.0
            },
            in_flight: match candidate.follows() {
                true => Vec::new(),
                false => (0..schedule.stages()).map(most_at_once).collect(),
            },
        })
    }
}
