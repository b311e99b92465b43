//! Peak bytes of the activations of one stage.
//!
//! Micro-batches share no buffer, so that the bytes of a stage are the sum of theirs. One micro-batch of each kind
//! is replayed, action by action, and the numbers are added up along the stage's actions.

use std::convert::Infallible;
use std::ops::Range;

use gpipe_sched::{GroupSums, Op, Schedule};

use super::replay::Replay;
use crate::{ModelCosts, Retained};

/// The peak bytes of activations of `stage`, which runs the layers `part`, if it keeps `kept` of each
/// micro-batch. With `portals`, tensors that pass the stage are not in its flows.
pub(crate) fn activations<'a>(
    costs: &ModelCosts,
    part: &Range<usize>,
    schedule: &Schedule,
    stage: usize,
    portals: bool,
    kept: impl Fn(usize) -> &'a Retained,
) -> u64 {
    // The micro-batches of a group share the outputs of the layers before the pipeline.
    if part.start == 0 && costs.before() > 0 {
        return replayed(costs, part, schedule, stage, portals, kept);
    }
    let mut ops: Vec<Vec<Op>> = vec![Vec::new(); schedule.micro_batches()];
    for action in schedule.of_stage(stage) {
        ops[action.micro_batch].push(action.op);
    }
    // A micro-batch of each kind, and the bytes of its actions.
    let mut kinds: Vec<(usize, Vec<ActionBytes>)> = Vec::new();
    let mut kind_of = Vec::with_capacity(ops.len());
    for m in 0..ops.len() {
        let is_alike = |&(other, _): &(usize, Vec<ActionBytes>)| {
            costs.samples(other) == costs.samples(m)
                && ops[other] == ops[m]
                && kept(other) == kept(m)
        };
        let kind = kinds.iter().rposition(is_alike).unwrap_or_else(|| {
            let mut replay = Replay::new(costs, &kept, schedule, stage, part.clone(), portals);
            let bytes = ops[m]
                .iter()
                .map(|&op| ActionBytes::new(&mut replay, op, m));
            kinds.push((m, bytes.collect()));
            kinds.len() - 1
        });
        kind_of.push(kind);
    }
    let gradients = costs.gradients(part.clone());
    let mut sums = GroupSums::new(costs.groups());
    let mut done = vec![0; ops.len()];
    let (mut live, mut peak) = (0_u64, 0_u64);
    for action in schedule.of_stage(stage) {
        let m = action.micro_batch;
        if action.op.adds_gradient() {
            let swap = |sum: Option<()>| {
                if sum.is_none() {
                    live = live.saturating_add(gradients);
                }
                Ok::<_, Infallible>(())
            };
            let Ok(()) = sums.enter(m, swap);
        }
        let bytes = kinds[kind_of[m]].1[done[m]];
        done[m] += 1;
        let others = live.saturating_sub(bytes.before);
        peak = peak.max(others.saturating_add(bytes.peak));
        live = others.saturating_add(bytes.after);
        if action.op.adds_gradient() {
            let add = |(), _| {
                live = live.saturating_sub(gradients);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = sums.leave(m, add);
        }
    }
    peak
}

/// The bytes of one micro-batch around an action.
#[derive(Clone, Copy)]
struct ActionBytes {
    before: u64,
    peak: u64,
    after: u64,
}

impl ActionBytes {
    fn new<'k, K: Fn(usize) -> &'k Retained>(replay: &mut Replay<'_, K>, op: Op, m: usize) -> Self {
        let before = replay.ledger.live();
        replay.ledger.reset_peak();
        replay.act(op, m);
        Self {
            before,
            peak: replay.ledger.peak(),
            after: replay.ledger.live(),
        }
    }
}

/// The same from a replay of all micro-batches.
fn replayed<'a>(
    costs: &ModelCosts,
    part: &Range<usize>,
    schedule: &Schedule,
    stage: usize,
    portals: bool,
    kept: impl Fn(usize) -> &'a Retained,
) -> u64 {
    let mut replay = Replay::new(costs, kept, schedule, stage, part.clone(), portals);
    for action in schedule.of_stage(stage) {
        replay.act(action.op, action.micro_batch);
    }
    replay.ledger.peak()
}

#[cfg(test)]
mod tests {
    use gpipe_sched::{gpipe, one_f_one_b, zb_h1, zb_v};

    use super::*;
    use crate::planner::Described;
    use crate::{ParameterBytes, micro_batches};

    /// Layers of different bytes, micro-batches of two sizes, in groups, some of them forgetting what others keep.
    #[test]
    fn the_sum_over_micro_batches_is_what_a_replay_of_all_has() {
        let layer = |index: u64| Described {
            forward: 1.0 + index as f64,
            parameters: 400 + 40 * index,
            saved: 1000 * (index % 3),
            output: 4000 - 400 * (index % 5),
            ..Described::default()
        };
        let layers: Vec<Described> = (0..8).map(layer).collect();
        let weights: ParameterBytes = Described::weights(&layers);
        let samples = micro_batches(22, 8).unwrap();
        let costs = Described::costed(&layers, 22, &samples).unwrap().costs;
        let inputs = Retained::Inputs { run: 2 };
        let cut = [0..2, 2..3, 3..7, 7..8];
        for groups in [1, 3, 8] {
            let costs = costs.clone().with_groups(groups, &weights).unwrap();
            for make in [gpipe, one_f_one_b, zb_h1, |_, parts| zb_v(2, parts)] {
                let schedule = make(4, 8).unwrap();
                for forgotten in [0, 1, 5, 8] {
                    let kept = |m: usize| match m < forgotten {
                        true => &inputs,
                        false => &Retained::Everything,
                    };
                    for (stage, part) in cut.iter().enumerate() {
                        let found = activations(&costs, part, &schedule, stage, false, kept);
                        let all = replayed(&costs, part, &schedule, stage, false, kept);
                        assert_eq!(found, all, "{groups} groups, {forgotten}, stage {stage}");
                    }
                }
            }
        }
    }
}
