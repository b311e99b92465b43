//! The executor's threads, channels and locks. With `RUSTFLAGS="--cfg shuttle"` they are those of shuttle, a model
//! checker that chooses every interleaving.

use std::time::Duration;

#[cfg(shuttle)]
pub(crate) use crate::executor::checked_channel as mpsc;
use crate::executor::clock::{Clock, Received};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};

/// Waits for an answer until the time `until` since the clock's start, if there is a limit.
///
/// Time during which the whole process was stopped (for example from a terminal) does not count: a
/// short wait that takes far too long reveals it, and the limit is extended by it.
#[cfg(not(shuttle))]
pub(crate) fn receive<A>(
    answers: &mpsc::Receiver<A>,
    clock: Clock,
    until: &mut Option<Duration>,
) -> Received<A> {
    while let Some(until) = until {
        const POLL: Duration = Duration::from_secs(1);
        let now = clock.passed();
        let Some(left) = until.checked_sub(now).filter(|left| !left.is_zero()) else {
            return Received::Late;
        };
        match answers.recv_timeout(left.min(POLL)) {
            Ok(answer) => return Received::Answer(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Received::Nobody,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // A clock that steps back has stopped nothing.
                let waited = clock.passed().saturating_sub(now);
                *until = until.saturating_add(waited.saturating_sub(2 * POLL));
            }
        }
    }
    answers.recv().map_or(Received::Nobody, Received::Answer)
}

/// Waits for an answer until the limit passes, if there is one.
#[cfg(shuttle)]
pub(crate) fn receive<A>(
    answers: &mpsc::Receiver<A>,
    clock: Clock,
    until: &mut Option<Duration>,
) -> Received<A> {
    answers.receive(clock, *until)
}
