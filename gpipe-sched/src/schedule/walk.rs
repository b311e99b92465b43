//! A walk over all actions of a schedule in an order in which they can run.
//!
//! Lanes are fixed lists and flows are received by name, so this is a Kahn network: if one walk
//! reaches the end, every interleaving does, and if one gets stuck, all do, at the same actions.
//! The checker needs to know whether it ends, the simulator when.

use crate::schedule::action::Action;
use crate::schedule::transfer::{Direction, Transfer};

/// Calls `visit(device, position, action)` for every action, each after its predecessor in the lane
/// and after the sender of the flow it takes. Linear in the number of actions.
///
/// # Errors
/// The position in each lane at which it is stuck.
pub(crate) fn walk(
    device_of: &[usize],
    micro_batches: usize,
    lanes: &[Vec<Action>],
    mut visit: impl FnMut(usize, usize, Action),
) -> Result<(), Vec<usize>> {
    let stages = device_of.len();
    let mut sent = vec![false; Transfer::table(stages, micro_batches)];
    for m in 0..micro_batches {
        sent[Transfer::new(Direction::Forward, 0, m).index(micro_batches)] = true;
    }
    let mut positions = vec![0; lanes.len()];
    let mut waits = vec![false; lanes.len()];
    let mut ready: Vec<usize> = (0..lanes.len()).rev().collect();
    while let Some(device) = ready.pop() {
        while let Some(&action) = lanes[device].get(positions[device]) {
            if action
                .receives()
                .is_some_and(|transfer| !sent[transfer.index(micro_batches)])
            {
                waits[device] = true;
                break;
            }
            visit(device, positions[device], action);
            positions[device] += 1;
            let Some(transfer) = action.sends(stages) else {
                continue;
            };
            sent[transfer.index(micro_batches)] = true;
            let taker = device_of[transfer.stage];
            if waits[taker] && lanes[taker][positions[taker]].receives() == Some(transfer) {
                waits[taker] = false;
                ready.push(taker);
            }
        }
    }
    let stuck = lanes
        .iter()
        .zip(&positions)
        .any(|(lane, &position)| position < lane.len());
    if stuck { Err(positions) } else { Ok(()) }
}
