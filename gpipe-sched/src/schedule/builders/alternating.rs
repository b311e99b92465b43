//! One stage per device, whole backward passes: GPipe and 1F1B.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::one_stage_per_device;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// GPipe (Huang et al. 2019, section 2.2): all micro-batches forward, then all backward, stage `s`
/// on device `s`.
///
/// ```text
/// device 0   F0 F1 F2 F3                   B0 B1 B2 B3
/// device 1      F0 F1 F2 F3             B0 B1 B2 B3
/// device 2         F0 F1 F2 F3       B0 B1 B2 B3
/// device 3            F0 F1 F2 F3 B0 B1 B2 B3
/// ```
///
/// The paper's figure 2(c) goes backward from the last micro-batch to the first. Here backward
/// ascends, because gradients are sums of floating-point numbers and a sum depends on its order:
/// 1F1B cannot descend, so only ascending makes the two bit-equal, and equal to one device. Bubble,
/// (K−1)/(M+K−1), and peak, M micro-batches, are the same. The only loss: under descending order
/// the last micro-batch is the first to go back and needs no recomputation.
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn gpipe(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    one_stage_per_device(stages, micro_batches, |stage| {
        lane(stage, micro_batches, micro_batches)
    })
}

/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): after the pipeline is filled
/// a stage alternates, so that stage `s` of K holds at most K−s micro-batches. The bubble is that
/// of GPipe.
///
/// ```text
/// device 0   F0 F1 F2 F3          B0    B1    B2    B3
/// device 1      F0 F1 F2       B0 F3 B1    B2    B3
/// device 2         F0 F1    B0 F2 B1 F3 B2    B3
/// device 3            F0 B0 F1 B1 F2 B2 F3 B3
/// ```
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn one_f_one_b(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    one_stage_per_device(stages, micro_batches, |stage| {
        lane(stage, micro_batches, micro_batches.min(stages - stage))
    })
}

/// A lane that runs forward passes until `live` micro-batches wait for their backward pass, then
/// alternates, then drains.
pub(super) fn lane(stage: usize, micro_batches: usize, live: usize) -> Vec<Action> {
    let mut lane = Vec::with_capacity(2 * micro_batches);
    lane.extend((0..live).map(|m| Action::new(stage, Op::Forward, m)));
    for m in 0..micro_batches {
        lane.push(Action::new(stage, Op::Backward, m));
        if live + m < micro_batches {
            lane.push(Action::new(stage, Op::Forward, live + m));
        }
    }
    lane
}
