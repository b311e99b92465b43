//! Several chunks of the model per device, all micro-batches through one before the next.

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::{assemble, round_robin};
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// Breadth-first pipeline parallelism, or looped BFS (Lamy-Poirier 2022): `chunks` stages per
/// device, stage `s` on device `s mod devices`; a device takes all micro-batches through its first
/// stage, then all through the next, and back. Each stage's weights are needed for one contiguous
/// stretch per pass, which suits sharded weights; every stage holds all M micro-batches.
///
/// ```text
/// device 0  0F0 0F1 2F0 2F1         2B0 2B1 0B0 0B1
/// device 1      1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1
/// ```
///
/// From K micro-batches on the bubble is that of [`interleaved`](crate::interleaved). With fewer, a
/// device waits for the first to come round again: a pass takes (V−1)·max(M, K)+M+K−1 actions.
/// Backward ascends as in all schedules here; PyTorch's schedule of this name descends.
///
/// # Errors
/// If there is no device, no chunk or no micro-batch, or more than a schedule can have.
pub fn looped_bfs(
    devices: usize,
    chunks: usize,
    micro_batches: usize,
) -> Result<Schedule, ScheduleError> {
    let stages = devices.saturating_mul(chunks);
    assemble(
        stages,
        devices,
        micro_batches,
        round_robin(devices),
        |device| {
            let all = |op, stage| (0..micro_batches).map(move |m| Action::new(stage, op, m));
            let own = || (device..stages).step_by(devices);
            own()
                .flat_map(|stage| all(Op::Forward, stage))
                .chain(own().rev().flat_map(|stage| all(Op::Backward, stage)))
                .collect()
        },
    )
}
