//! Who is at work on what, and who waits for whom: what is said when a step does not end.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::Transfer;

/// A worker that has not come to the end of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Whose worker.
    pub device: usize,
    /// What it does.
    pub doing: Doing,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Its stages begin the step.
    Beginning,
    /// It waits for the flow that an action takes.
    Waiting {
        /// The action.
        action: Action,
        /// The stage that has to send the flow; `None` where it is the caller's.
        from: Option<usize>,
    },
    /// It is within an action.
    Acting(Action),
    /// Its stages finish the step.
    Finishing,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ", self.device)?;
        match self.doing {
            Doing::Beginning => f.write_str("begins the step"),
            Doing::Acting(action) => write!(f, "is within {action}"),
            Doing::Finishing => f.write_str("finishes the step"),
            Doing::Waiting { action, from } => {
                write!(f, "waits to do {action}")?;
                match (action.receives(), from) {
                    (Some(transfer), Some(from)) => write!(f, " for {transfer} from stage {from}"),
                    (Some(transfer), None) => write!(f, " for {transfer}"),
                    (None, _) => Ok(()),
                }
            }
        }
    }
}

/// Several workers, those at work first: the others wait for them.
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

/// Where each worker of a context is. Only looked at when it is too late, so nothing depends on how
/// soon a store is seen.
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

    /// The worker comes to a position of its lane, and may have to wait for a flow.
    pub fn reach(&self, device: usize, position: usize) {
        self.0[device].store(2 * position, Ordering::Relaxed);
    }

    /// It has the flow.
    pub fn enter(&self, device: usize, position: usize) {
        self.0[device].store(2 * position + 1, Ordering::Relaxed);
    }

    /// It has nothing left to do.
    pub fn end(&self, device: usize) {
        self.0[device].store(Self::DONE, Ordering::Relaxed);
    }

    /// The workers that are not done, those at work first.
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
