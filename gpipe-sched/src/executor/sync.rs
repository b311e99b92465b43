//! The executor's threads, channels, locks and clock. With `RUSTFLAGS="--cfg shuttle"` they are
//! those of shuttle, a model checker that chooses every interleaving, and no time passes.

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

/// Seconds since the start of a call.
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

/// Waits for a condition to change, until a time since the clock's start; the flag says that it is over.
/// Under the model checker no time passes.
pub(crate) fn wait<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    clock: Clock,
    until: Option<std::time::Duration>,
) -> (MutexGuard<'a, T>, bool) {
    #[cfg(not(shuttle))]
    if let Some(until) = until {
        let left = until.saturating_sub(clock.origin.elapsed());
        let waited = changed.wait_timeout(guard, left);
        let (guard, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        return (guard, clock.origin.elapsed() >= until);
    }
    let _ = (clock, until);
    let waited = changed.wait(guard);
    (
        waited.unwrap_or_else(std::sync::PoisonError::into_inner),
        false,
    )
}

/// The result of waiting for an answer.
pub(crate) enum Received<A> {
    Answer(A),
    /// All senders are gone.
    Nobody,
    Late,
}

/// Waits for an answer until the time `until` since the clock's start, if there is a limit. Under
/// the model checker no time passes; there the limit passes at any time or never.
///
/// Time during which the whole process was stopped (for example from a terminal) does not count: a
/// short wait that takes far too long reveals it, and the limit is extended by it.
pub(crate) fn receive<A>(
    answers: &mpsc::Receiver<A>,
    clock: Clock,
    until: &mut Option<std::time::Duration>,
) -> Received<A> {
    #[cfg(not(shuttle))]
    while let Some(until) = until {
        const POLL: std::time::Duration = std::time::Duration::from_secs(1);
        let now = clock.origin.elapsed();
        let Some(left) = until.checked_sub(now).filter(|left| !left.is_zero()) else {
            return Received::Late;
        };
        match answers.recv_timeout(left.min(POLL)) {
            Ok(answer) => return Received::Answer(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Received::Nobody,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // A clock that steps back has stopped nothing.
                let waited = clock.origin.elapsed().saturating_sub(now);
                *until = until.saturating_add(waited.saturating_sub(2 * POLL));
            }
        }
    }
    #[cfg(shuttle)]
    if until.is_some() && shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.25) {
        return Received::Late;
    }
    let _ = (clock, until);
    answers.recv().map_or(Received::Nobody, Received::Answer)
}
