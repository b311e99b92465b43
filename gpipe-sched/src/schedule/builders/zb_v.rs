//! Two chunks of the model per device, folded in a V, weight gradients split off.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::{assemble, folded};
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// ZB-V (Qi et al. 2023, section 6; V-ZB in Qi et al. 2024, "Pipeline Parallelism with Controllable
/// Memory"): of 2·K stages, device `d` has `d` and `2·K−1−d`. The model goes down the devices and
/// back up, so the first device has the last stage and the loss as well, and backward starts there
/// at once. As [`zb_h2`](crate::zb_h2), but in the memory of 1F1B: no device holds more than 2·K
/// micro-batches of a stage, which are half as large as there.
///
/// With F = I = W, from 2·K−1 micro-batches on, each device works 6·M without a pause. With fewer,
/// the schedule of 2·K−1 is used without the actions of the missing ones; the longest time from a
/// device's first action to its last is then max(6·M, 4·M+4·K−2).
///
/// ```text
/// device 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
/// device 1      1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
/// ```
///
/// # Errors
/// If there is no device or no micro-batch, or more than a schedule can have.
pub fn zb_v(devices: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    let (stages, device_of) = folded(devices);
    assemble(stages, devices, micro_batches, device_of, |device| {
        fold(devices, micro_batches, device)
    })
}

/// The lane of one device.
///
/// A flow comes back up to device d after 2·(K−d)−1 actions. Until then the device runs forward
/// passes on the way down; from then on it alternates, so that both stages keep up with their
/// neighbours.
fn fold(devices: usize, micro_batches: usize, device: usize) -> Vec<Action> {
    use Op::{Forward, InputGrad, WeightGrad};
    let (down, up) = (device, 2 * devices - 1 - device);
    let below = devices - device;
    let full = micro_batches.max(2 * devices - 1);
    let mut lane = Vec::with_capacity(6 * micro_batches);
    // Repeats some actions, each time with the next micro-batch. No index is less than `i`, so
    // `micro_batches` repetitions are enough.
    let mut repeat = |times: usize, actions: &[(usize, Op, usize)]| {
        for i in 0..times.min(micro_batches) {
            let actions = actions
                .iter()
                .map(|&(stage, op, first)| Action::new(stage, op, first + i));
            lane.extend(actions.filter(|action| action.micro_batch < micro_batches));
        }
    };
    repeat(2 * below - 1, &[(down, Forward, 0)]);
    repeat(device, &[(up, Forward, 0), (down, Forward, 2 * below - 1)]);
    repeat(
        below,
        &[
            (up, Forward, device),
            (up, InputGrad, 0),
            (up, WeightGrad, 0),
        ],
    );
    repeat(
        full - devices,
        &[
            (down, Forward, devices + below - 1),
            (down, InputGrad, 0),
            (down, WeightGrad, 0),
            (up, Forward, devices),
            (up, InputGrad, below),
            (up, WeightGrad, below),
        ],
    );
    // No forward pass is left. Input gradients go first: other devices wait for them.
    repeat(
        device,
        &[
            (down, InputGrad, full - devices),
            (up, InputGrad, full - device),
        ],
    );
    repeat(
        below,
        &[
            (down, InputGrad, full - below),
            (down, WeightGrad, full - devices),
        ],
    );
    repeat(device, &[(up, WeightGrad, full - device)]);
    repeat(device, &[(down, WeightGrad, full - device)]);
    lane
}
