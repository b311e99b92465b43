//! Progress of the workers, for the error of a step that does not end: busy workers with their
//! actions, waiting ones with what they wait for.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::Transfer;

/// A worker that has not finished its lane.
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
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ", self.device)?;
        match self.doing {
            Doing::Beginning => f.write_str("begins the step"),
            Doing::Acting(action) => write!(f, "runs {action}"),
            Doing::Finishing => f.write_str("finishes the step"),
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

/// The position of each worker in its lane. Read only after a deadline, so relaxed ordering is
/// enough.
pub(crate) struct Progress(Vec<AtomicUsize>);

impl Progress {
    const BEGINS: usize = usize::MAX;
    const DONE: usize = usize::MAX - 1;

    pub fn new(devices: usize) -> Self {
        Self(
            (0..devices)
                .map(|_| AtomicUsize::new(Self::BEGINS))
                .collect(),
        )
    }

    /// The worker reaches a position of its lane, and may wait for a flow.
    pub fn reach(&self, device: usize, position: usize) {
        self.0[device].store(2 * position, Ordering::Relaxed);
    }

    /// The worker has the flow of a position.
    pub fn enter(&self, device: usize, position: usize) {
        self.0[device].store(2 * position + 1, Ordering::Relaxed);
    }

    /// The worker has finished its lane.
    pub fn end(&self, device: usize) {
        self.0[device].store(Self::DONE, Ordering::Relaxed);
    }

    /// The workers that are not done, busy ones first.
    pub fn stuck(&self, schedule: &Schedule) -> Vec<Stuck> {
        let all = self.0.iter().enumerate().filter_map(|(device, place)| {
            let doing = match place.load(Ordering::Relaxed) {
                Self::DONE => return None,
                Self::BEGINS => Doing::Beginning,
                place => match schedule.lanes()[device].get(place / 2) {
                    None => Doing::Finishing,
                    Some(&action) if place % 2 == 0 && action.receives().is_some() => {
                        Doing::Waiting {
                            action,
                            from: action
                                .receives()
                                .and_then(|transfer: Transfer| transfer.sender(schedule.stages())),
                        }
                    }
                    Some(&action) => Doing::Acting(action),
                },
            };
            Some(Stuck { device, doing })
        });
        let mut stuck: Vec<Stuck> = all.collect();
        stuck.sort_by_key(|stuck| matches!(stuck.doing, Doing::Waiting { .. }));
        stuck
    }
}
