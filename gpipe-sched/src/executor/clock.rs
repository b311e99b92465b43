//! The clock of calls, and limits of waits by it. Under shuttle no time passes: a limit is a thread that ends the wait
//! when the scheduler lets it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

#[cfg(shuttle)]
use shuttle::{
    sync::{Condvar, MutexGuard},
    thread,
};
#[cfg(not(shuttle))]
use std::sync::{Condvar, MutexGuard};

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
    pub fn passed(self) -> Duration {
        self.origin.elapsed()
    }

    #[cfg(not(shuttle))]
    pub fn seconds(self) -> f64 {
        self.passed().as_secs_f64()
    }

    #[cfg(shuttle)]
    pub fn seconds(self) -> f64 {
        0.0
    }
}

/// A limit of the time for which a condition is waited for.
pub(crate) struct Limit {
    #[cfg(not(shuttle))]
    until: Option<(Clock, Duration)>,
    #[cfg(shuttle)]
    has_passed: Option<Arc<std::sync::atomic::AtomicBool>>,
}

impl Limit {
    /// Until a time since the clock's start.
    #[cfg(not(shuttle))]
    pub fn new(_changed: &Arc<Condvar>, clock: Clock, until: Option<Duration>) -> Self {
        Self {
            until: until.map(|until| (clock, until)),
        }
    }

    /// Under the model checker the limit is a thread, [`ALARM`]: it passes at any moment, or, where the scheduler lets
    /// threads of this name run last, when no other thread can go on.
    #[cfg(shuttle)]
    pub fn new(changed: &Arc<Condvar>, _clock: Clock, until: Option<Duration>) -> Self {
        use shuttle::rand::Rng as _;
        use std::sync::atomic::{AtomicBool, Ordering};
        let has_passed = until.map(|_| Arc::new(AtomicBool::new(false)));
        if let Some(passed) = has_passed.clone() {
            let changed = changed.clone();
            let ring = move || {
                for _ in 0..shuttle::rand::thread_rng().gen_range(0..LONGEST_WAIT) {
                    thread::yield_now();
                }
                passed.store(true, Ordering::Relaxed);
                changed.notify_all();
            };
            let spawned = thread::Builder::new().name(ALARM.to_owned()).spawn(ring);
            assert!(spawned.is_ok());
        }
        Self { has_passed }
    }

    /// Waits for a condition to change; the flag says that the limit has passed.
    pub fn wait<'a, T>(
        &self,
        changed: &Condvar,
        guard: MutexGuard<'a, T>,
    ) -> (MutexGuard<'a, T>, bool) {
        #[cfg(not(shuttle))]
        if let Some((clock, until)) = self.until {
            let left = until.saturating_sub(clock.passed());
            let waited = changed.wait_timeout(guard, left);
            let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            return (guard, clock.passed() >= until);
        }
        #[cfg(shuttle)]
        let passed = || {
            let passed = self.has_passed.as_ref();
            passed.is_some_and(|passed| passed.load(std::sync::atomic::Ordering::Relaxed))
        };
        #[cfg(shuttle)]
        if passed() {
            return (guard, true);
        }
        let guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        #[cfg(shuttle)]
        return (guard, passed());
        #[cfg(not(shuttle))]
        (guard, false)
    }
}

/// The name of threads that are limits.
#[cfg(shuttle)]
const ALARM: &str = "alarm";

/// The most turns that a limit waits before it passes, where the scheduler prefers no thread.
#[cfg(shuttle)]
const LONGEST_WAIT: usize = 100;

/// The result of waiting for an answer.
pub(crate) enum Received<A> {
    Answer(A),
    /// All senders are gone.
    Nobody,
    Late,
}
