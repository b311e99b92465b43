//! Several chunks of the model per device, alternating forward and backward passes.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::alternating::lane;
use crate::schedule::builders::assemble::{assemble, round_robin};
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// Interleaved 1F1B (Narayanan et al. 2021, section 2.2): `chunks` stages per device, stage `s` on
/// device `s mod devices`, so that a micro-batch passes every device `chunks` times. With V chunks
/// the bubble shrinks to (K−1)/(V·M+K−1), and flows cross between devices V times as often.
///
/// Micro-batches go in rounds of K. A device runs a round through its first chunk, then through the
/// next, and back in the opposite order of chunks; it alternates after (V−1)·K + 2·(K−1−d) forward
/// passes, so device d holds at most one more than that.
///
/// ```text
/// device 0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1     2B2     2B3 0B2 0B3
/// device 1      1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
/// ```
///
/// The paper asks for a multiple of K micro-batches. Any other number gives the schedule of the
/// next multiple without the actions of the missing ones, which delays no other action. One chunk
/// is [1F1B](crate::one_f_one_b), which holds fewer micro-batches than the rule above would.
///
/// # Errors
/// If there is no device, no chunk or no micro-batch, or more than a schedule can have.
pub fn interleaved(
    devices: usize,
    chunks: usize,
    micro_batches: usize,
) -> Result<Schedule, ScheduleError> {
    let stages = devices.saturating_mul(chunks);
    let device_of = round_robin(devices);
    assemble(stages, devices, micro_batches, device_of, |device| {
        if chunks == 1 {
            lane(device, micro_batches, micro_batches.min(devices - device))
        } else {
            alternate(devices, chunks, micro_batches, device)
        }
    })
}

/// The lane of a device with several chunks.
fn alternate(devices: usize, chunks: usize, micro_batches: usize, device: usize) -> Vec<Action> {
    let rounds = micro_batches.div_ceil(devices);
    let ahead = (chunks - 1) * devices + 2 * (devices - 1 - device);
    let ahead = ahead.min(rounds * chunks * devices);
    // The position in a lane of full rounds: first the passes that go ahead, then forward (even)
    // and backward (odd) in turn.
    let position = |action: &Action| {
        let chunk = action.stage / devices;
        let (round, rest) = (action.micro_batch / devices, action.micro_batch % devices);
        let nth = |chunk| (round * chunks + chunk) * devices + rest;
        match action.op {
            Op::Forward if nth(chunk) < ahead => nth(chunk),
            Op::Forward => 2 * nth(chunk) - ahead,
            _ => ahead + 2 * nth(chunks - 1 - chunk) + 1,
        }
    };
    let mut lane: Vec<Action> = [Op::Forward, Op::Backward]
        .into_iter()
        .flat_map(|op| (0..chunks).map(move |chunk| (op, chunk * devices + device)))
        .flat_map(|(op, stage)| (0..micro_batches).map(move |m| Action::new(stage, op, m)))
        .collect();
    lane.sort_by_key(position);
    lane
}
