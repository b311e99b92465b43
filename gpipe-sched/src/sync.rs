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
