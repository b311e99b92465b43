//! Two chunks of the model per device, folded in a V, in a half or a third of the memory of 1F1B.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::folded;
use crate::schedule::builders::compact::compact;
use crate::schedule::check::check_size;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// V-Half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): of 2·K stages, device
/// `d` has `d` and `2·K−1−d`. On the way down, a micro-batch reaches the next device after two
/// actions, on the way up after one: it is held for about 3·K actions, half as long as under 1F1B.
///
/// No device holds more than 2·⌊(K+2)/2⌋ micro-batches of a stage, which are half as large as with
/// one stage per device. With F = I = W, from K micro-batches on, the step takes 6·M+3·K−7 for an
/// even K from 4 and 6·M+3·K−4 for an odd one from 3: a device idles half as long as under 1F1B.
///
/// ```text
/// device 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 0W0 3W1 3F2 3I2 0I1 0W1 0I2 3W2 0W2
/// device 1      1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2
/// ```
///
/// # Errors
/// If there is no device or no micro-batch, or more than a schedule can have.
pub fn v_half(devices: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    let gap = if devices.is_multiple_of(2) { 3 } else { 0 };
    let held = devices.saturating_add(2) / 2 * 2;
    repeat(devices, micro_batches, held, |d| {
        let turn = 3 * devices - d - 2;
        [
            2 * d,
            turn,
            3 * devices + gap + 2 * d - 1,
            3 * devices + gap + turn,
        ]
    })
}

/// V-Min (Qi et al. 2024): as [`v_half`], with a distance of one both ways, so that a micro-batch
/// is held for the shortest time.
///
/// No device holds more than 2·⌊(K+4)/3⌋ micro-batches of a stage, which are half as large as with
/// one stage per device: a third of 1F1B's memory. With F = I = W and 3 devices or more, above K
/// micro-batches, the step takes 6·M+4·K−5, and 2 less if 3 divides K: two thirds of 1F1B's idle
/// time. Where F, I and W differ, every micro-batch adds a small wait.
///
/// ```text
/// device 0  0F0 0F1 0F2         5F0 5I0 5W0 5F1 5I1 5W1 0I0 0W0     5F2 5I2 0I1 0W1 5W2     0I2 0W2
/// device 1      1F0 1F1     4F0     4F1 4I0 4W0 1F2 1I0 1W0 4I1 4W1 4F2 1I1 4I2 1W1 4W2 1I2 1W2
/// device 2          2F0 3F0 2F1 3F1         3I0 2I0 3W0 2W0 2F2 3F2 3I1 2I1 3W1 2W1 3I2 2I2 3W2 2W2
/// ```
///
/// # Errors
/// If there is no device or no micro-batch, or more than a schedule can have.
pub fn v_min(devices: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    let gap = if devices.is_multiple_of(3) { 2 } else { 0 };
    let held = devices.saturating_add(4) / 3 * 2;
    repeat(devices, micro_batches, held, |d| {
        let turn = 2 * devices - 1 - d;
        [d, turn, 2 * devices + gap + d, 2 * devices + gap + turn]
    })
}

/// Repeats a building block every six actions, once per micro-batch, and compacts the result.
///
/// `block(d)` gives the times at which device `d` runs the first micro-batch's forward passes on
/// the way down and up, and its input gradients on the way up and down. No two differ by a multiple
/// of six, so repetitions do not collide. Weight gradients fill the free times.
fn repeat(
    devices: usize,
    micro_batches: usize,
    held: usize,
    block: impl Fn(usize) -> [usize; 4],
) -> Result<Schedule, ScheduleError> {
    let (stages, device_of) = folded(devices);
    check_size(stages, micro_batches)?;
    let lanes = (0..devices).map(|device| {
        let (down, up) = (device, stages - 1 - device);
        let kinds = [
            (down, Op::Forward),
            (up, Op::Forward),
            (up, Op::InputGrad),
            (down, Op::InputGrad),
        ];
        let block = block(device);
        let mut timed: Vec<(usize, Action)> = Vec::with_capacity(4 * micro_batches);
        for (first, (stage, op)) in block.into_iter().zip(kinds) {
            let at = |m| (first + BLOCK * m, Action::new(stage, op, m));
            timed.extend((0..micro_batches).map(at));
        }
        timed.sort_unstable_by_key(|&(time, _)| time);
        fill(&timed)
    });
    let device_of: Vec<usize> = (0..stages).map(device_of).collect();
    let lanes = compact(&device_of, micro_batches, lanes.collect(), held);
    Schedule::new(device_of, micro_batches, lanes)
}

/// Actions per device and micro-batch.
const BLOCK: usize = 6;

/// Puts weight gradients, oldest first, into free times, and the rest at the end.
fn fill(timed: &[(usize, Action)]) -> Vec<Action> {
    let mut lane = Vec::with_capacity(timed.len() / 2 * 3);
    let mut pending = std::collections::VecDeque::new();
    let mut now = 0;
    for &(time, action) in timed {
        while now < time
            && let Some(weight_grad) = pending.pop_front()
        {
            lane.push(weight_grad);
            now += 1;
        }
        now = time + 1;
        lane.push(action);
        if action.op == Op::InputGrad {
            pending.push_back(Action {
                op: Op::WeightGrad,
                ..action
            });
        }
    }
    lane.extend(pending);
    lane
}
