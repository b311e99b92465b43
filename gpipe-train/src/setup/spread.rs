//! How a model is spread over workers: the cut and the schedule that were asked for.

use gpipe_partition::Partition;
use gpipe_remat::Policy;
use gpipe_sched::{Costs, Schedule, simulate};

use crate::config::{Cut, ScheduleChoice};
use crate::error::{Error, Result};

/// The cut that was asked for, of layers that cost so much each.
pub fn cut(rule: &Cut, costs: &[u64], stages: usize) -> Result<Partition> {
    match rule {
        Cut::Balance => gpipe_partition::balance(costs, stages),
        Cut::Histogram => {
            let costs: Vec<f64> = costs.iter().map(|&cost| cost as f64).collect();
            gpipe_partition::histogram(&costs, stages)
        }
        Cut::Sizes(sizes) if sizes.len() != stages => {
            let parts = sizes.len();
            return Err(Error::invalid(format!(
                "{parts} sizes in pipeline.partition but {stages} stages: give one size for each, or `pipeline.stages = {parts}`"
            )));
        }
        Cut::Sizes(sizes) => gpipe_partition::explicit(sizes, costs.len()),
    }
    .map_err(Error::input)
}

/// The schedule anew, if it is one that follows the costs.
pub fn follow(order: &ScheduleChoice, schedule: Schedule, costs: &Costs) -> Result<Schedule> {
    let ScheduleChoice::ZeroBubble(held) = order else {
        return Ok(schedule);
    };
    let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
    gpipe_sched::zero_bubble(stages, micro_batches, costs, |_| held.unwrap_or(stages))
        .map_err(Error::input)
}

/// Computes again what was not kept while a worker would wait, if that makes the step shorter.
pub fn hide_recomputation(schedule: Schedule, policy: Policy, costs: &Costs) -> Result<Schedule> {
    // A budget is weighed without anything computed ahead.
    if matches!(policy, Policy::Keep | Policy::Budget(_)) {
        return Ok(schedule);
    }
    let early = schedule.recompute_early(costs).map_err(Error::input)?;
    let seconds = |schedule: &Schedule| simulate(schedule, costs).map(|t| t.makespan());
    let gains =
        seconds(&early).map_err(Error::input)? < seconds(&schedule).map_err(Error::input)?;
    Ok(if gains { early } else { schedule })
}

/// The most pairs of a stage and a micro-batch: far beyond any training, and within any memory.
const MOST_CELLS: usize = 1 << 20;

/// The schedule that was asked for. One that follows the costs is 1F1B until they are known.
pub fn schedule(order: &ScheduleChoice, stages: usize, micro_batches: usize) -> Result<Schedule> {
    if let Some(table) = order.table()? {
        return Ok(table);
    }
    let chunks = order.chunks();
    if !stages.is_multiple_of(chunks) {
        let (below, above) = (stages / chunks * chunks, stages.next_multiple_of(chunks));
        let counts = match below {
            0 => format!("`pipeline.stages = {above}`"),
            below => format!("`pipeline.stages = {below}` or {above}"),
        };
        return Err(Error::invalid(format!(
            "{stages} stages but {chunks} on each worker: use {counts}"
        )));
    }
    // What follows makes lists of actions: a few hundred bytes for each stage and micro-batch.
    let most = MOST_CELLS / stages;
    if micro_batches > most {
        return Err(Error::invalid(format!(
            "{stages} stages and {micro_batches} micro-batches make a schedule that is too long to \
             be looked at: use fewer micro-batches, {} at most",
            most.max(1)
        )));
    }
    let workers = stages / chunks;
    match order {
        ScheduleChoice::Gpipe => gpipe_sched::gpipe(workers, micro_batches),
        // A table was read above.
        ScheduleChoice::OneFOneB | ScheduleChoice::ZeroBubble(_) | ScheduleChoice::File(_) => {
            gpipe_sched::one_f_one_b(workers, micro_batches)
        }
        ScheduleChoice::Interleaved(_) => gpipe_sched::interleaved(workers, chunks, micro_batches),
        ScheduleChoice::LoopedBfs(_) => gpipe_sched::looped_bfs(workers, chunks, micro_batches),
        ScheduleChoice::ZbH1 => gpipe_sched::zb_h1(workers, micro_batches),
        ScheduleChoice::ZbH2 => gpipe_sched::zb_h2(workers, micro_batches),
        ScheduleChoice::ZbV => gpipe_sched::zb_v(workers, micro_batches),
        ScheduleChoice::VHalf => gpipe_sched::v_half(workers, micro_batches),
        ScheduleChoice::VMin => gpipe_sched::v_min(workers, micro_batches),
        ScheduleChoice::DualPipeV => gpipe_sched::dualpipe_v(workers, micro_batches),
    }
    .map_err(Error::input)
}
