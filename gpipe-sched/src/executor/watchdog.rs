//! Progress of the workers, for the error of a call that does not end: busy workers with their
//! actions and visits, waiting ones with what they wait for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::executor::part::Part;
use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::Transfer;

/// A worker that has not finished its part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The worker's device.
    pub device: usize,
    /// The worker's state.
    pub doing: Doing,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// In `begin` of its stages.
    Beginning,
    /// Waiting for the flow that an action takes.
    Waiting {
        /// The action.
        action: Action,
        /// The stage that sends the flow; `None` for the caller's input.
        from: Option<usize>,
    },
    /// Running an action.
    Acting(Action),
    /// In `finish` of its stages.
    Finishing,
    /// Running a closure of the caller.
    Visiting {
        /// The part that is visited.
        part: Part,
        /// The name of the visit, as [`Pipeline::during`](crate::Pipeline::during) sets it.
        task: &'static str,
    },
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ", self.device)?;
        match self.doing {
            Doing::Beginning => f.write_str("begins the step"),
            Doing::Acting(action) => write!(f, "runs {action}"),
            Doing::Finishing => f.write_str("finishes the step"),
            Doing::Visiting { part, task } => write!(f, "runs {task} of {part}"),
            Doing::Waiting { action, from } => {
                write!(f, "waits before {action}")?;
                match (action.receives(), from) {
                    (Some(transfer), Some(from)) => write!(f, " for {transfer} from stage {from}"),
                    (Some(transfer), None) => write!(f, " for {transfer}"),
                    (None, _) => Ok(()),
                }
            }
        }
    }
}

/// Formats several workers, busy ones first: the others wait for them.
pub(crate) struct All<'a>(pub &'a [Stuck]);

impl fmt::Display for All<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (place, stuck) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{stuck}", if place > 0 { "; " } else { "" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// What the workers do in one call, and how far each is. Positions are read only after a deadline, so
/// relaxed ordering is enough.
pub(crate) struct Progress {
    work: Work,
    positions: Vec<AtomicUsize>,
}

/// The work of a call.
enum Work {
    /// The lane of each worker.
    Lanes(Arc<Schedule>),
    /// The parts that each worker visits, in order.
    Visit {
        task: &'static str,
        parts: Vec<Vec<Part>>,
    },
}

impl Progress {
    const BEGINS: usize = usize::MAX;

    /// Of a step or an evaluation: every worker begins its lane.
    pub fn of_lanes(schedule: Arc<Schedule>) -> Self {
        let begins = |_| AtomicUsize::new(Self::BEGINS);
        Self {
            positions: (0..schedule.devices()).map(begins).collect(),
            work: Work::Lanes(schedule),
        }
    }

    /// Of a visit: every worker that has parts is at the first of them.
    pub fn of_visit(task: &'static str, parts: Vec<Vec<Part>>) -> Self {
        let first = |_| AtomicUsize::new(1);
        Self {
            positions: parts.iter().map(first).collect(),
            work: Work::Visit { task, parts },
        }
    }

    /// The worker reaches a position of its lane, and may wait for a flow.
    pub fn reach(&self, device: usize, position: usize) {
        self.positions[device].store(2 * position, Ordering::Relaxed);
    }

    /// The worker has the flow of a position, or begins a part of a visit.
    pub fn enter(&self, device: usize, position: usize) {
        self.positions[device].store(2 * position + 1, Ordering::Relaxed);
    }

    /// Whether each worker has no part in the call, and so nothing to answer.
    pub fn idle(&self) -> Vec<bool> {
        match &self.work {
            Work::Lanes(schedule) => vec![false; schedule.devices()],
            Work::Visit { parts, .. } => parts.iter().map(Vec::is_empty).collect(),
        }
    }

    /// The workers that have not answered, busy ones first. One that waits for a flow that has arrived
    /// is busy: nobody else keeps it from its action.
    pub fn stuck(&self, answered: &[bool], arrived: impl Fn(Transfer) -> bool) -> Vec<Stuck> {
        let all = self.positions.iter().zip(answered).enumerate();
        let all = all.filter(|(_, (_, answered))| !**answered);
        let all = all.filter_map(|(device, (position, _))| {
            let doing = match position.load(Ordering::Relaxed) {
                Self::BEGINS => Doing::Beginning,
                position => self.doing(device, position, &arrived)?,
            };
            Some(Stuck { device, doing })
        });
        let mut stuck: Vec<Stuck> = all.collect();
        stuck.sort_by_key(|stuck| matches!(stuck.doing, Doing::Waiting { .. }));
        stuck
    }

    fn doing(
        &self,
        device: usize,
        position: usize,
        arrived: &impl Fn(Transfer) -> bool,
    ) -> Option<Doing> {
        let (position, entered) = (position / 2, position % 2 == 1);
        let schedule = match &self.work {
            Work::Lanes(schedule) => schedule,
            Work::Visit { task, parts } => {
                let part = *parts[device].get(position)?;
                return Some(Doing::Visiting { part, task });
            }
        };
        Some(match schedule.lanes()[device].get(position) {
            None => Doing::Finishing,
            Some(&action) => match action.receives() {
                Some(transfer) if !entered && !arrived(transfer) => Doing::Waiting {
                    action,
                    from: transfer.sender(schedule.stages()),
                },
                _ => Doing::Acting(action),
            },
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::one_f_one_b;

    #[test]
    fn a_worker_that_does_not_take_what_has_arrived_is_named_first() {
        let progress = Progress::of_lanes(Arc::new(one_f_one_b(2, 2).unwrap()));
        // Both before their second action: 0F1 and 1B0.
        progress.reach(0, 1);
        progress.reach(1, 1);
        let named = |arrived: fn(Transfer) -> bool| {
            let stuck = progress.stuck(&[false, false], arrived);
            stuck.iter().map(Stuck::to_string).collect::<Vec<_>>()
        };
        let waits = "device 0 waits before 0F1 for activations of micro-batch 1 for stage 0";
        assert_eq!(named(|_| false)[0], waits);
        let named = named(|transfer| transfer.stage == 1);
        assert_eq!(named, ["device 1 runs 1B0", waits]);
        assert_eq!(progress.stuck(&[true, true], |_| false), []);
    }
}
