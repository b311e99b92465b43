//! Prediction of the bytes of messages between ranks. They are in memory of the host and in no stage's bytes.

use std::ops::Range;

use gpipe_layers::Kind::Statistic;
use gpipe_layers::{Layer, Optimizer, Param};
use gpipe_sched::{Groups, Portal, Schedule};

use super::StateShards;
use crate::{ModelCosts, RematPlan};

/// The bytes of messages that a rank has sent or received and not read, at most and at the same time, however long
/// actions take: by the part of a training step in which they pass. Copies of what is read are in transit
/// ([`Assembled::transit`](crate::Assembled::transit)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageBytes {
    /// Activations and their gradients, to and from neighbouring stages.
    pub flows: u64,
    /// Gradients of a replica's groups of micro-batches, to and from the other replicas: sent while the backward pass
    /// still runs, and read after it.
    pub parts: u64,
    /// Gradients of all groups, to and from the other replicas.
    pub sums: u64,
    /// Updated values, to and from the other replicas, where these divide the optimizer states among them.
    pub values: u64,
    /// Gradients and values of tied parameters.
    pub ties: u64,
}

impl MessageBytes {
    /// The most at a time: parts pass beside flows and sums.
    pub fn peak(&self) -> u64 {
        let [flows, sums] = [self.flows, self.sums].map(|bytes| bytes.saturating_add(self.parts));
        flows.max(sums).max(self.values).max(self.ties)
    }

    fn add(&mut self, other: Self) {
        for (sum, bytes) in [
            (&mut self.flows, other.flows),
            (&mut self.parts, other.parts),
            (&mut self.sums, other.sums),
            (&mut self.values, other.values),
            (&mut self.ties, other.ties),
        ] {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// The bytes of messages of each rank of a replica; `rank_of` is the rank of each stage, counted from the first of the
/// replica. The other arguments are those of the pipeline, with parameters that need not be made yet.
///
/// # Panics
/// If the parts do not fit each other, as [`RematPlan::new`] checks them.
pub fn predict_messages(
    layers: &mut [Box<dyn Layer>],
    optimizer: Option<&Optimizer>,
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
    rank_of: &[usize],
) -> Vec<MessageBytes> {
    let costs = &*remat_plan.applied_to(costs);
    let ranks = rank_of.iter().max().map_or(0, |last| last + 1);
    let mut all = vec![MessageBytes::default(); ranks];
    for stage in 1..cut.len().min(rank_of.len()) {
        let ends = [rank_of[stage - 1], rank_of[stage]];
        if ends[0] != ends[1] {
            let flows = flow_bytes(costs, cut, schedule, remat_plan, stage, rank_of);
            // The sender's copy, and that of the receiver.
            for end in ends {
                all[end].flows = all[end].flows.saturating_add(flows);
            }
        }
    }
    let replicas = remat_plan.groups().replicas();
    for (part, &rank) in cut.iter().zip(rank_of).filter(|_| replicas > 1) {
        let shards = remat_plan.shards_optimizer().then_some(optimizer).flatten();
        all[rank].add(of_replicas(
            &mut layers[part.clone()],
            remat_plan.groups(),
            shards,
        ));
    }
    if ranks > 1 {
        let ties = tied_bytes(layers, cut, rank_of, ranks);
        for (bytes, ties) in all.iter_mut().zip(ties) {
            bytes.ties = ties;
        }
    }
    all
}

/// Bytes of the flows between a stage and the one before it, of as many micro-batches as can be under way.
fn flow_bytes(
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
    stage: usize,
    rank_of: &[usize],
) -> u64 {
    let portals = remat_plan.portals();
    // The first micro-batch is the largest.
    let mut bytes = portals.flow_bytes(costs, stage, cut[stage].start);
    for portal in portals.ends() {
        // Those between ranks stay in the flow.
        let is_over = portal.from < stage && stage <= portal.to;
        if is_over && rank_of[portal.from] != rank_of[portal.to] {
            let of_portal = portals.bytes(costs, 0, portal);
            bytes = [0, 1].map(|way| bytes[way].saturating_add(of_portal[way]));
        }
    }
    let slots = schedule.portal_slots(Portal {
        from: stage - 1,
        to: stage,
    });
    let ways = [0, 1].map(|way| bytes[way].saturating_mul(slots[way] as u64));
    ways[0].saturating_add(ways[1])
}

/// Bytes of a gradient, or of a value that replicas share, as a message.
fn message_bytes(param: &Param) -> u64 {
    param.elements().saturating_mul(4)
}

/// What the replicas of a stage tell each other, by the shares in which they sum; `shards` is the optimizer whose states
/// they divide.
fn of_replicas(
    layers: &mut [Box<dyn Layer>],
    groups: Groups,
    shards: Option<&Optimizer>,
) -> MessageBytes {
    let (own, replicas) = (groups.replica(), groups.replicas());
    let (others, sums) = (replicas as u64 - 1, sums_of(groups));
    let mut states = StateShards::new(replicas);
    let mut bytes = MessageBytes::default();
    for layer in layers {
        let mut merges = false;
        layer.merged_rows(&mut |_| merges = true);
        layer.params(&mut |param| {
            let state = shards.filter(|_| !param.tied);
            let owner = state.and_then(|optimizer| states.of(optimizer.state_bytes(param)));
            if param.grad_bytes() == 0 {
                return;
            }
            let whole = message_bytes(param);
            let [mut sent, mut received] = [0, 0];
            let mut more = MessageBytes::default();
            match owner {
                Some(owner) if owner == own => {
                    received = whole.saturating_mul(others);
                    more.values = whole.saturating_mul(others);
                }
                Some(_) => {
                    sent = whole;
                    more.values = whole;
                }
                None if merges && param.kind == Statistic => {
                    sent = whole.saturating_mul(others);
                    received = sent;
                }
                None => {
                    // Shares differ by an element.
                    let share = (whole / 4).div_ceil(replicas as u64) * 4;
                    sent = whole - (whole / 4) / replicas as u64 * 4;
                    received = share.saturating_mul(others);
                    // Its own share to all others, and theirs.
                    more.sums = received.saturating_add(sent);
                }
            }
            more.parts = sent.saturating_add(received).saturating_mul(sums);
            bytes.add(more);
        });
    }
    bytes
}

/// The number of sums that a replica ends with: the largest nodes of the tree among its groups.
fn sums_of(groups: Groups) -> u64 {
    let (own, mut sums) = (groups.own(), 0);
    let mut of = |node: &Range<usize>| {
        let is_own = own.start <= node.start && node.end <= own.end;
        let is_of_others = node.end <= own.start || own.end <= node.start;
        sums += u64::from(is_own);
        (is_own || is_of_others).then_some(())
    };
    groups.sum_parts(&mut of, &mut |(), ()| ());
    sums
}

/// What each rank of a replica sends to all others, and receives: the gradients of tied places, and then the values of
/// their owners.
fn tied_bytes(
    layers: &mut [Box<dyn Layer>],
    cut: &[Range<usize>],
    rank_of: &[usize],
    ranks: usize,
) -> Vec<u64> {
    // Name, rank, bytes of the gradient and of the value, and whether it is tied and frozen.
    let mut places = Vec::new();
    for (part, &rank) in cut.iter().zip(rank_of) {
        for layer in &mut layers[part.clone()] {
            layer.params(&mut |param| {
                places.push((
                    param.name.clone(),
                    rank,
                    message_bytes(param),
                    param.elements().saturating_mul(param.dtype.bytes() as u64),
                    param.tied,
                    param.frozen,
                ));
            });
        }
    }
    let names: Vec<&String> = places
        .iter()
        .filter_map(|(name, .., tied, _)| tied.then_some(name))
        .collect();
    let (mut gradients, mut values) = (vec![0_u64; ranks], vec![0_u64; ranks]);
    for (name, rank, of_gradient, of_value, tied, frozen) in &places {
        let (sums, bytes) = match tied {
            true if *frozen => continue,
            true => (&mut gradients, of_gradient),
            false if names.contains(&name) => (&mut values, of_value),
            false => continue,
        };
        sums[*rank] = sums[*rank].saturating_add(*bytes);
    }
    let held = |sums: &[u64], rank: usize| {
        let all = sums
            .iter()
            .fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
        let sent = sums[rank].saturating_mul(ranks as u64 - 1);
        sent.saturating_add(all - sums[rank])
    };
    (0..ranks)
        .map(|rank| held(&gradients, rank).max(held(&values, rank)))
        .collect()
}

#[cfg(test)]
mod tests;
