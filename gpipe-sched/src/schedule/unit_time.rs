//! A schedule in which every action takes one unit of time: its shape.

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::Transfer;
use crate::schedule::walk::walk;

/// Calls `visit(device, start, action)` for every action, each after the one before it in its lane;
/// `start` is in units of time from the start of the step. Transfers take no time.
pub(crate) fn for_each_in_unit_time(
    schedule: &Schedule,
    mut visit: impl FnMut(usize, usize, Action),
) {
    let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
    let mut arrivals = vec![0_u32; Transfer::table(stages, micro_batches)];
    let mut now = vec![0_u32; schedule.devices()];
    let walked = walk(
        schedule.device_of(),
        micro_batches,
        schedule.lanes(),
        |device, _, action| {
            let arrival = action
                .receives()
                .map_or(0, |transfer| arrivals[transfer.index(micro_batches)]);
            let start = now[device].max(arrival);
            now[device] = start + 1;
            if let Some(transfer) = action.sends(stages) {
                arrivals[transfer.index(micro_batches)] = start + 1;
            }
            visit(device, start as usize, action);
        },
    );
    debug_assert!(walked.is_ok(), "a schedule that exists has no deadlock");
}
