//! The schedules of this crate, as plain functions from sizes to data.

mod compact;
mod dualpipe_v;
mod interleaved;
mod looped_bfs;
pub(crate) mod split;
mod v_shape;
mod zb_v;

pub use dualpipe_v::dualpipe_v;
pub use interleaved::interleaved;
pub use looped_bfs::looped_bfs;
pub use split::{zb_h1, zb_h2};
pub use v_shape::{v_half, v_min};
pub use zb_v::zb_v;

use crate::schedule::action::{Action, Op};
use crate::schedule::check::check_size;
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

/// Evaluation: every micro-batch forward, nothing backward, stage `s` on device `s`.
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn forward_only(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    check_size(stages, micro_batches)?;
    forward_over((0..stages).collect(), micro_batches)
}

/// Evaluation where the stages already live somewhere.
///
/// Actions are in the order of `stage + micro_batch`, the moment at which an even pipeline reaches
/// them. This order puts `F` after the `F` of the stage before, whatever device that is on.
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

fn one_stage_a_device(
    stages: usize,
    micro_batches: usize,
    lane: impl Fn(usize) -> Vec<Action>,
) -> Result<Schedule, ScheduleError> {
    schedule(stages, stages, micro_batches, |stage| stage, lane)
}

/// Puts a schedule together from the lane of each device, after a look at its size.
fn schedule(
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

/// Deals stages out to devices, one after the other.
fn round_robin(devices: usize) -> impl Fn(usize) -> usize {
    move |stage| stage % devices
}

/// The stages of devices with two each, folded in a V: how many there are, and where each lives.
fn folded(devices: usize) -> (usize, impl Fn(usize) -> usize) {
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

/// A lane that goes forward until `live` micro-batches wait for their backward pass, alternates
/// while there are more, and drains.
fn lane(stage: usize, micro_batches: usize, live: usize) -> Vec<Action> {
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
