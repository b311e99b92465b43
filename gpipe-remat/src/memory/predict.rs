//! Prediction of the peak bytes of every stage: each stage's actions are replayed on a ledger, buffer by
//! buffer, exactly as [`LayerStage`](crate::LayerStage) would run them.

use std::ops::Range;

use gpipe_sched::{Held, Schedule};

use super::activations::activations;
use super::replay::Replay;
use crate::{ModelCosts, ParameterBytes, RematPlan, StageMemory};

/// The memory of every stage over one training step under `schedule` and `remat_plan`.
///
/// # Panics
/// If the parts do not fit each other, as [`RematPlan::new`] checks them.
pub fn predict_memory(
    weights: &ParameterBytes,
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
) -> Vec<StageMemory> {
    let costs = &*remat_plan.applied_to(costs);
    let portals = !remat_plan.portals().is_empty();
    let kept = |stage| move |m| remat_plan.kept(stage, m);
    let of_stage = |(stage, part): (usize, &Range<usize>)| StageMemory {
        activations: activations(costs, part, schedule, stage, portals, kept(stage)),
        ..weights.of_stage(part.clone())
    };
    cut.iter().enumerate().map(of_stage).collect()
}

/// The bytes that every stage holds over one training step, in the form that
/// [`Timeline::with_held`](gpipe_sched::Timeline::with_held) takes: those before the first action, then one
/// entry for each of its actions. `memory` is the result of [`predict_memory`] for the same run.
///
/// # Panics
/// As [`predict_memory`].
pub fn predict_held(
    memory: &[StageMemory],
    costs: &ModelCosts,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
) -> Vec<Vec<Held>> {
    let costs = &*remat_plan.applied_to(costs);
    let of_stage = |(stage, (memory, part)): (usize, (&StageMemory, &Range<usize>))| {
        let fixed = memory.fixed();
        let mut held = vec![Held {
            now: fixed,
            most: fixed,
        }];
        let kept = |m| remat_plan.kept(stage, m);
        let portals = !remat_plan.portals().is_empty();
        let mut replay = Replay::new(costs, kept, schedule, stage, part.clone(), portals);
        for action in schedule.of_stage(stage) {
            replay.ledger.reset_peak();
            replay.act(action.op, action.micro_batch);
            held.push(Held {
                now: fixed.saturating_add(replay.ledger.live()),
                most: fixed.saturating_add(replay.ledger.peak()),
            });
        }
        held
    };
    memory.iter().zip(cut).enumerate().map(of_stage).collect()
}
