//! Who computes now, and on how many threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The threads of a host, which the actions that run share evenly among themselves.
pub(crate) struct Turns {
    threads: usize,
    /// The share of each action that runs, in the order in which they began.
    running: Mutex<Vec<Arc<AtomicUsize>>>,
    freed: Condvar,
}

impl Turns {
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            running: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// The thread budget.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Waits until fewer actions run than there are threads, then joins them.
    pub fn begin(self: &Arc<Self>, share: Arc<AtomicUsize>) -> Busy {
        let mut running = self.lock();
        while running.len() >= self.threads {
            let freed = self.freed.wait(running);
            running = freed.unwrap_or_else(PoisonError::into_inner);
        }
        running.push(share.clone());
        self.share_out(&running);
        Busy {
            turns: Some(self.clone()),
            share,
        }
    }

    fn end(&self, share: &Arc<AtomicUsize>) {
        let mut running = self.lock();
        if let Some(place) = running.iter().position(|one| Arc::ptr_eq(one, share)) {
            running.remove(place);
        }
        // What a handle does outside of actions may use all threads.
        share.store(self.threads, Ordering::Relaxed);
        self.share_out(&running);
        drop(running);
        self.freed.notify_one();
    }

    /// Those that have run for the longest time get what cannot be divided. An operation that is under
    /// way keeps its threads; the next one of the same action uses the new share.
    fn share_out(&self, running: &[Arc<AtomicUsize>]) {
        for (place, share) in running.iter().enumerate() {
            let more = usize::from(place < self.threads % running.len());
            share.store(self.threads / running.len() + more, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<AtomicUsize>>> {
        // Nothing panics while the lock is held.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to compute, and a share of the threads, which follows the number of those who compute;
/// given back on drop.
#[must_use]
pub struct Busy {
    /// Where the turn is given back, if one was taken.
    turns: Option<Arc<Turns>>,
    share: Arc<AtomicUsize>,
}

impl Busy {
    /// No turn, and a thread of its own: for what computes elsewhere.
    pub(crate) fn elsewhere() -> Self {
        Self {
            turns: None,
            share: Arc::new(AtomicUsize::new(1)),
        }
    }

    /// How many threads this action may use now.
    pub fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(turns) = &self.turns {
            turns.end(&self.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn begin(turns: &Arc<Turns>) -> Busy {
        turns.begin(Arc::default())
    }

    #[test]
    fn actions_share_the_threads_and_one_too_many_waits() {
        let turns = Arc::new(Turns::new(5));
        let mut guards = Vec::new();
        let expected: [&[usize]; 5] = [&[5], &[3, 2], &[2, 2, 1], &[2, 1, 1, 1], &[1; 5]];
        for expected in expected {
            guards.push(begin(&turns));
            let shares: Vec<usize> = guards.iter().map(Busy::share).collect();
            assert_eq!(shares, expected);
        }
        let (begun, has_begun) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let busy = begin(&turns);
                begun.send(busy.share()).unwrap();
            });
            assert!(has_begun.recv_timeout(Duration::from_millis(50)).is_err());
            guards.pop();
            assert_eq!(has_begun.recv(), Ok(1));
        });
        // Who goes on is given what the others leave.
        guards.truncate(2);
        let shares: Vec<usize> = guards.iter().map(Busy::share).collect();
        assert_eq!(shares, [3, 2]);
        drop(guards);
        assert_eq!(begin(&turns).share(), 5);
    }
}
