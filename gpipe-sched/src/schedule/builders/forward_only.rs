//! Evaluation: forward passes alone.

use crate::schedule::action::{Action, Op};
use crate::schedule::check::check_size;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// Evaluation: forward passes of all micro-batches and no backward pass, stage `s` on device `s`.
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn forward_only(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    check_size(stages, micro_batches)?;
    forward_over((0..stages).collect(), micro_batches)
}

/// Evaluation with given devices of the stages.
///
/// Actions are in the order of `stage + micro_batch`, the time at which an even pipeline reaches
/// them. This order puts `F` after the `F` of the previous stage, on any device.
pub(crate) fn forward_over(
    device_of: Vec<usize>,
    micro_batches: usize,
) -> Result<Schedule, ScheduleError> {
    let stages = device_of.len();
    check_size(stages, micro_batches)?;
    let devices = device_of.iter().max().map_or(0, |device| device + 1);
    let mut lanes = vec![Vec::new(); devices];
    for moment in 0..stages + micro_batches - 1 {
        let first = moment.saturating_sub(micro_batches - 1);
        for stage in first..stages.min(moment + 1) {
            lanes[device_of[stage]].push(Action::new(stage, Op::Forward, moment - stage));
        }
    }
    Schedule::new(device_of, micro_batches, lanes)
}
