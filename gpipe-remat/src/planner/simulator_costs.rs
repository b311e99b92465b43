//! The simulator's costs of a model under a cut and a remat plan.

use std::ops::Range;

use gpipe_sched::{Action, Costs, LinkCosts, Op, PortalCosts, Schedule, StageCosts};

use super::times::{Times, Work};
use crate::{ModelCosts, RematPlan, Retained};

/// Whether a stage has separate actions for input and weight gradients.
pub(crate) fn splits(schedule: &Schedule, stage: usize) -> bool {
    let mut actions = schedule.of_stage(stage);
    actions.any(|action| action.op == Op::WeightGrad)
}

/// The work of the layers before the pipeline, as additions to the actions of the first stage that do it: the first
/// forward pass of each group, and the last pass that takes an input gradient.
fn before_pipeline(
    costs: &ModelCosts,
    work: &[Work],
    schedule: &Schedule,
    before: usize,
) -> Vec<(Action, f64)> {
    let work = &work[..before];
    let largest = costs.samples(0) as f64;
    let forward: f64 = work.iter().map(|work| work.forward).sum();
    let backward = |work: &Work| work.input_grad + work.weight_grad;
    let backward: f64 = work.iter().map(backward).sum();
    let groups = costs.groups().own().filter(|_| before > 0);
    groups
        .flat_map(|group| {
            let members = costs.groups().micro_batches(group);
            let samples: usize = members.clone().map(|m| costs.samples(m)).sum();
            let actions = || {
                let own = schedule.of_stage(0);
                own.filter(|action| members.contains(&action.micro_batch))
            };
            let first = actions().find(|action| action.op == Op::Forward);
            let last = actions().filter(|action| matches!(action.op, Op::Backward | Op::InputGrad));
            let share = samples as f64 / largest;
            let first = first.map(|action| (action, forward * share));
            let last = last.last();
            let last = last.map(|action| (action, backward * share));
            first.into_iter().chain(last)
        })
        .collect()
}

/// The simulator's costs of a model under a cut and a remat plan, by the number of cores that an action
/// may use, from one on, as [`simulate_shared`](gpipe_sched::simulate_shared) takes them. Transfers are
/// free.
///
/// # Panics
/// If the parts do not fit each other, as [`RematPlan::new`] checks them, or `times` are of fewer layers.
pub fn simulator_costs(
    costs: &ModelCosts,
    times: &Times,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
) -> Vec<Costs> {
    let costs = &*remat_plan.applied_to(costs);
    let times = &*times.without_frozen(costs);
    let largest = costs.samples(0) as f64;
    let micro_batches = schedule.micro_batches();
    // Micro-batches differ by one sample at most; times are those of the first, the largest.
    let sizes = (0..micro_batches).map(|m| costs.samples(m) as f64 / largest);
    let sizes: Vec<f64> = sizes.collect();
    let ends = remat_plan.portals().ends().into_iter();
    let free = ends.map(|portal| PortalCosts {
        portal,
        link: LinkCosts::default(),
    });
    let on = |cores: usize| {
        let (mut stages, mut left, mut operations) = (Vec::new(), Vec::new(), Vec::new());
        for (stage, part) in cut.iter().enumerate() {
            let part = &(part.start.max(remat_plan.before())..part.end);
            // The same for every micro-batch that is not fully kept.
            let mut cells = remat_plan.of_stage(stage).iter();
            let forgetting = cells.find(|kept| **kept != Retained::Everything);
            let again = |kept| times.again(cores, part, kept, costs);
            let [recompute, rest] = forgetting.map_or([0.0; 2], again);
            stages.push(StageCosts {
                recompute,
                ..times.of_stage(cores, part, splits(schedule, stage), costs.first_trained())
            });
            left.push(rest);
            operations.push(times.operation(cores, part));
        }
        Costs::new(stages)
            .with_sizes(sizes.clone())
            .with_portals(free.clone().collect())
            .with_additions(before_pipeline(
                costs,
                times.on(cores),
                schedule,
                remat_plan.before(),
            ))
            .with_left(left)
            .with_operations(operations)
            .with_recompute(micro_batches, |stage, m| {
                *remat_plan.kept(stage, m) != Retained::Everything
            })
    };
    (1..=times.cores()).map(on).collect()
}
