//! Threads, channels, locks and the clock, all from here, so that the executor can be run under a
//! model checker: `RUSTFLAGS="--cfg shuttle"` replaces them by shuttle's, where every interleaving
//! is chosen by the checker and no time passes.

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};

/// Seconds since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    #[cfg(not(shuttle))]
    origin: std::time::Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self {
            #[cfg(not(shuttle))]
            origin: std::time::Instant::now(),
        }
    }

    #[cfg(not(shuttle))]
    pub fn seconds(self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    #[cfg(shuttle)]
    pub fn seconds(self) -> f64 {
        0.0
    }
}

/// What came of waiting for an answer.
pub(crate) enum Received<A> {
    Answer(A),
    /// Nobody is left who could answer.
    Nobody,
    Late,
}

/// Waits for an answer until some time since the clock was started, if there is a limit. Under the
/// model checker no time passes, so nothing is ever late.
///
/// The time in which the whole program was stopped (by a user, say) is no fault of the workers: it
/// is seen by a short wait that takes far too long, and added to the limit.
pub(crate) fn receive<A>(
    answers: &mpsc::Receiver<A>,
    clock: Clock,
    until: &mut Option<std::time::Duration>,
) -> Received<A> {
    #[cfg(not(shuttle))]
    while let Some(until) = until {
        const GLANCE: std::time::Duration = std::time::Duration::from_secs(1);
        let now = clock.origin.elapsed();
        let Some(left) = until.checked_sub(now).filter(|left| !left.is_zero()) else {
            return Received::Late;
        };
        match answers.recv_timeout(left.min(GLANCE)) {
            Ok(answer) => return Received::Answer(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Received::Nobody,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let stopped = (clock.origin.elapsed() - now).saturating_sub(2 * GLANCE);
                *until = until.saturating_add(stopped);
            }
        }
    }
    let _ = (clock, until);
    answers.recv().map_or(Received::Nobody, Received::Answer)
}
