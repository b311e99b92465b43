//! Checks whether lanes are a schedule.

use crate::schedule::action::{Action, Op};
use crate::schedule::fault::{Cell, Fault, MAX_CELLS, ScheduleError};
use crate::schedule::walk::walk;

/// Stands for an action that is missing.
const MISSING: usize = usize::MAX;

/// Refuses sizes that are zero or too large.
pub(crate) fn check_size(stages: usize, micro_batches: usize) -> Result<(), ScheduleError> {
    match stages.checked_mul(micro_batches) {
        Some(0) => Err(Fault::Empty {
            stages,
            micro_batches,
        }
        .into()),
        Some(cells) if cells <= MAX_CELLS => Ok(()),
        _ => Err(Fault::TooLarge {
            stages,
            micro_batches,
        }
        .into()),
    }
}

/// Refuses lanes that are not a schedule. Checks sizes, positions, completeness, order and
/// deadlock, in this order.
pub(crate) fn check(
    device_of: &[usize],
    micro_batches: usize,
    lanes: &[Vec<Action>],
) -> Result<(), ScheduleError> {
    check_size(device_of.len(), micro_batches)?;
    check_devices(device_of, lanes.len())?;
    let positions = Positions::collect(device_of, micro_batches, lanes)?;
    let forward_only = lanes
        .iter()
        .flatten()
        .all(|action| action.op == Op::Forward);
    for (stage, &device) in device_of.iter().enumerate() {
        for m in 0..micro_batches {
            positions.check(lanes, device, stage, m, forward_only)?;
        }
    }
    walk(device_of, micro_batches, lanes, |_, _, _| {})
        .map_err(|stuck| deadlock(device_of, lanes, &stuck))
}

fn check_devices(device_of: &[usize], devices: usize) -> Result<(), ScheduleError> {
    let mut owns = vec![false; devices];
    for (stage, &device) in device_of.iter().enumerate() {
        match owns.get_mut(device) {
            Some(owns) => *owns = true,
            None => {
                return Err(Fault::NoSuchDevice {
                    stage,
                    device,
                    devices,
                }
                .into());
            }
        }
    }
    match owns.iter().position(|owns| !owns) {
        Some(device) => Err(Fault::IdleDevice { device }.into()),
        None => Ok(()),
    }
}

/// The position of each action in its lane.
struct Positions {
    micro_batches: usize,
    /// Per stage and micro-batch, per operation: of as many as there are actions and one more. Behind them no fault is the
    /// first, since one of these has no action.
    positions: Vec<[usize; Op::ALL.len()]>,
}

impl Positions {
    fn collect(
        device_of: &[usize],
        micro_batches: usize,
        lanes: &[Vec<Action>],
    ) -> Result<Self, ScheduleError> {
        let stages = device_of.len();
        let actions: usize = lanes.iter().map(Vec::len).sum();
        let cells = (stages * micro_batches).min(actions + 1);
        let mut positions = vec![[MISSING; Op::ALL.len()]; cells];
        for (device, lane) in lanes.iter().enumerate() {
            for (position, &action) in lane.iter().enumerate() {
                let at = Cell { device, position };
                if action.stage >= stages {
                    return Err(ScheduleError::at(
                        Fault::NoSuchStage { action, stages },
                        at,
                        lanes,
                    ));
                }
                if action.micro_batch >= micro_batches {
                    let fault = Fault::NoSuchMicroBatch {
                        action,
                        micro_batches,
                    };
                    return Err(ScheduleError::at(fault, at, lanes));
                }
                let owner = device_of[action.stage];
                if owner != device {
                    let fault = Fault::WrongDevice {
                        action,
                        device,
                        owner,
                    };
                    return Err(ScheduleError::at(fault, at, lanes));
                }
                let cell = action.stage * micro_batches + action.micro_batch;
                let Some(places) = positions.get_mut(cell) else {
                    continue;
                };
                if std::mem::replace(&mut places[action.op as usize], position) != MISSING {
                    return Err(ScheduleError::at(Fault::Twice { action }, at, lanes));
                }
            }
        }
        Ok(Self {
            micro_batches,
            positions,
        })
    }

    /// Checks that one stage has all actions of one micro-batch, in order.
    fn check(
        &self,
        lanes: &[Vec<Action>],
        device: usize,
        stage: usize,
        micro_batch: usize,
        forward_only: bool,
    ) -> Result<(), ScheduleError> {
        let found = &self.positions[stage * self.micro_batches + micro_batch];
        let place = |op: Op| found[op as usize];
        let has = |op: Op| place(op) != MISSING;
        let action = |op| Action::new(stage, op, micro_batch);
        // A missing action is shown at the action beside it, or at the end of the lane.
        let missing = |op: Op, beside: Op| {
            let position = if has(beside) {
                place(beside)
            } else {
                lanes[device].len()
            };
            let at = Cell { device, position };
            Err(ScheduleError::at(
                Fault::Missing { action: action(op) },
                at,
                lanes,
            ))
        };
        if !has(Op::Forward) {
            let beside = Op::ALL
                .into_iter()
                .find(|&op| has(op))
                .unwrap_or(Op::Forward);
            return missing(Op::Forward, beside);
        }
        if forward_only {
            return Ok(());
        }
        for part in [Op::InputGrad, Op::WeightGrad] {
            if has(Op::Backward) && has(part) {
                let at = Cell {
                    device,
                    position: place(part),
                };
                return Err(ScheduleError::at(
                    Fault::Both {
                        action: action(part),
                    },
                    at,
                    lanes,
                ));
            }
        }
        match (has(Op::Backward), has(Op::InputGrad), has(Op::WeightGrad)) {
            (false, false, false) => return missing(Op::Backward, Op::Forward),
            (false, true, false) => return missing(Op::WeightGrad, Op::InputGrad),
            (false, false, true) => return missing(Op::InputGrad, Op::WeightGrad),
            _ => {}
        }
        let mut last = Op::Forward;
        for op in Op::ALL.into_iter().filter(|&op| has(op)) {
            if place(op) < place(last) {
                let fault = Fault::Order {
                    action: action(op),
                    after: action(last),
                };
                return Err(ScheduleError::at(
                    fault,
                    Cell {
                        device,
                        position: place(op),
                    },
                    lanes,
                ));
            }
            last = op;
        }
        Ok(())
    }
}

/// Finds a ring of lanes that wait for each other, given the positions at which all are stuck.
fn deadlock(device_of: &[usize], lanes: &[Vec<Action>], stuck: &[usize]) -> ScheduleError {
    // A stuck lane waits for a flow sent by a later action of another stuck lane; following these
    // waits from lane to lane must close a ring.
    let wait = |device: usize| {
        let waits = *lanes[device].get(stuck[device])?;
        let transfer = waits.receives()?;
        let owner = device_of[transfer.sender(device_of.len())?];
        let gives = |action: &&Action| action.sends(device_of.len()) == Some(transfer);
        let needs = lanes[owner][stuck[owner]..].iter().find(gives)?;
        Some((waits, *needs, owner))
    };
    let mut device = stuck
        .iter()
        .zip(lanes)
        .position(|(&at, lane)| at < lane.len())
        .unwrap_or(0);
    // Of each lane, its place among the waits.
    let mut seen = vec![None; lanes.len()];
    let mut ring = Vec::new();
    while seen[device].is_none() {
        let Some((waits, needs, owner)) = wait(device) else {
            break;
        };
        seen[device] = Some(ring.len());
        ring.push((waits, needs));
        device = owner;
    }
    // The search may have started outside the ring.
    let start = seen[device].unwrap_or(0);
    let at = Cell {
        device,
        position: stuck[device],
    };
    ScheduleError::at(
        Fault::Deadlock {
            ring: ring.split_off(start),
        },
        at,
        lanes,
    )
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Sizes come from files: what is not there is named without memory for all that should be.
    #[test]
    fn a_few_actions_of_huge_sizes_take_a_few_places() {
        let last = Action::new(0, Op::Forward, MAX_CELLS - 1);
        let lanes = [vec![last]];
        let positions = Positions::collect(&[0], MAX_CELLS, &lanes).expect("places that exist");
        assert_eq!(positions.positions.len(), 2);
        let error = check(&[0], MAX_CELLS, &lanes).unwrap_err();
        let action = Action::new(0, Op::Forward, 0);
        assert_eq!(*error.fault(), Fault::Missing { action });
    }
}
