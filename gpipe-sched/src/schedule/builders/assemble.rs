//! Assembles schedules from the lanes of devices.

use crate::schedule::action::Action;
use crate::schedule::check::check_size;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

pub(super) fn one_stage_per_device(
    stages: usize,
    micro_batches: usize,
    lane: impl Fn(usize) -> Vec<Action>,
) -> Result<Schedule, ScheduleError> {
    assemble(stages, stages, micro_batches, |stage| stage, lane)
}

/// Assembles a schedule from the lane of each device, after a check of the sizes.
pub(super) fn assemble(
    stages: usize,
    devices: usize,
    micro_batches: usize,
    device_of: impl Fn(usize) -> usize,
    lane: impl Fn(usize) -> Vec<Action>,
) -> Result<Schedule, ScheduleError> {
    check_size(stages, micro_batches)?;
    Schedule::new(
        (0..stages).map(device_of).collect(),
        micro_batches,
        (0..devices).map(lane).collect(),
    )
}

/// The device of a stage where stages are dealt out round-robin.
pub(super) fn round_robin(devices: usize) -> impl Fn(usize) -> usize {
    move |stage| stage % devices
}

/// The number of stages of devices with two each, folded in a V, and the device of a stage.
pub(super) fn folded(devices: usize) -> (usize, impl Fn(usize) -> usize) {
    let stages = devices.saturating_mul(2);
    let device_of = move |stage| {
        if stage < devices {
            stage
        } else {
            stages - 1 - stage
        }
    };
    (stages, device_of)
}
