//! One stage per device, whole backward passes: GPipe and 1F1B.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::one_stage_a_device;
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
/// 1F1B cannot descend, so only ascending lets the two give the same bits, those of one device.
/// It costs nothing: bubble, (K−1)/(M+K−1), and peak, M micro-batches, are the same. What it gives
/// up is that the last micro-batch would be the first to go back and need not be computed again.
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn gpipe(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    one_stage_a_device(stages, micro_batches, |stage| {
        lane(stage, micro_batches, micro_batches)
    })
}

/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): after filling the pipeline a
/// stage alternates, so that stage `s` of K never holds more than K−s micro-batches. The bubble is
/// GPipe's.
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
    one_stage_a_device(stages, micro_batches, |stage| {
        lane(stage, micro_batches, micro_batches.min(stages - stage))
    })
}

/// A lane that goes forward until `live` micro-batches wait for their backward pass, alternates
/// while there are more, and drains.
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
