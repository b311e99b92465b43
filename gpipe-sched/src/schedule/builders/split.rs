//! One stage per device, weight gradients deferred to where the device would idle.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::assemble;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// ZB-H1 (Qi et al. 2023, section 2.1): the backward pass is split: `I` runs at once, because the
/// previous stage waits for it, and `W` later, where the device would wait.
///
/// With F = I = W the step takes 3·M+K−1 from K micro-batches on: the bubble is K−1, a third of
/// 1F1B's 3·(K−1). Every stage holds up to K micro-batches, as the first stage of 1F1B does.
///
/// ```text
/// device 0  F0 F1 F2       I0 W0 F3 I1 W1 I2 W2 I3 W3
/// device 1     F0 F1    I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
/// device 2        F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
/// ```
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn zb_h1(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    split(stages, micro_batches, stages)
}

/// ZB-H2 (Qi et al. 2023, section 2.2): [`zb_h1`] with twice the memory. Enough micro-batches go
/// ahead for no stage to wait, once it has begun, until it is done: with F = I = W, from 2·K−1
/// micro-batches on, each device works 3·M without a pause. The rest of the bubble is the staggered
/// start and end of the devices.
///
/// A stage holds 2·K−1 micro-batches. Fewer than that cannot fill the gaps: then all M go ahead, and
/// the longest time from a device's first action to its last is 2·M+2·K−1.
///
/// ```text
/// device 0  F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
/// device 1     F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
/// device 2        F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
/// ```
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have.
pub fn zb_h2(stages: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    let most = (2 * stages.min(Schedule::MAX_CELLS)).saturating_sub(1);
    split(stages, micro_batches, micro_batches.max(stages).min(most))
}

/// A stage holds up to `live` micro-batches, K to 2·K−1.
///
/// Some of them wait for their input gradient: their forward passes precede the first `I`. They are
/// 2 fewer on each next stage, which is 2 actions nearer to the loss, but never fewer than under
/// 1F1B. The others wait for their weight gradient: `W` lags that far behind `I`, so that the
/// stages nearest to the loss, which start last, have the most work left for the end. With F = I =
/// W and enough micro-batches a device idles 2·K−1−`live` between its first action and its last.
pub(crate) fn split(
    stages: usize,
    micro_batches: usize,
    live: usize,
) -> Result<Schedule, ScheduleError> {
    let device_of = |stage| stage;
    assemble(stages, stages, micro_batches, device_of, |stage| {
        let ahead = (stages - stage).max(live.saturating_sub(2 * stage));
        let lag = live - ahead;
        let action = |op, m| Action::new(stage, op, m);
        let mut lane = Vec::with_capacity(3 * micro_batches);
        lane.extend((0..ahead.min(micro_batches)).map(|m| action(Op::Forward, m)));
        for m in 0..micro_batches {
            lane.push(action(Op::InputGrad, m));
            if m >= lag {
                lane.push(action(Op::WeightGrad, m - lag));
            }
            if m + ahead < micro_batches {
                lane.push(action(Op::Forward, m + ahead));
            }
        }
        let left = micro_batches.saturating_sub(lag)..micro_batches;
        lane.extend(left.map(|m| action(Op::WeightGrad, m)));
        lane
    })
}
