//! Shares the CPU thread budget among running actions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The thread budget of a host, divided evenly among running actions.
pub(crate) struct ThreadBudget {
    threads: usize,
    /// The share of each running action, in order of start.
    running: Mutex<Vec<Arc<AtomicUsize>>>,
    /// Notified when an action ends.
    freed: Condvar,
}

impl ThreadBudget {
    /// A budget of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            running: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Starts an action: waits while as many actions run as there are threads.
    pub fn begin(self: &Arc<Self>, share: Arc<AtomicUsize>) -> CpuSlot {
        let mut running = self.lock();
        while running.len() >= self.threads {
            let freed = self.freed.wait(running);
            running = freed.unwrap_or_else(PoisonError::into_inner);
        }
        running.push(share.clone());
        self.share_out(&running);
        CpuSlot {
            budget: Some(self.clone()),
            share,
        }
    }

    fn end(&self, share: &Arc<AtomicUsize>) {
        let mut running = self.lock();
        if let Some(place) = running.iter().position(|one| Arc::ptr_eq(one, share)) {
            running.remove(place);
        }
        // Outside of actions, operations of a handle may use all threads.
        share.store(self.threads, Ordering::Relaxed);
        self.share_out(&running);
        drop(running);
        self.freed.notify_one();
    }

    /// Recomputes all shares; the longest-running actions get the remainder. A running operation keeps
    /// its threads, and the next operation of its action uses the new share.
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

/// The right of one action to compute on the CPU, with a share of the host's threads. The share changes
/// as other actions start and end. Dropping the slot releases it.
#[must_use]
pub struct CpuSlot {
    /// The budget that the slot belongs to; none for work on another device.
    budget: Option<Arc<ThreadBudget>>,
    share: Arc<AtomicUsize>,
}

impl CpuSlot {
    /// A slot outside of any budget, with one thread: for work on a GPU.
    pub(crate) fn elsewhere() -> Self {
        Self {
            budget: None,
            share: Arc::new(AtomicUsize::new(1)),
        }
    }

    /// Threads that this action may use now.
    pub fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }
}

impl Drop for CpuSlot {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.end(&self.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn begin(budget: &Arc<ThreadBudget>) -> CpuSlot {
        budget.begin(Arc::default())
    }

    #[test]
    fn actions_share_the_threads_and_one_too_many_waits() {
        let budget = Arc::new(ThreadBudget::new(5));
        let mut guards = Vec::new();
        let expected: [&[usize]; 5] = [&[5], &[3, 2], &[2, 2, 1], &[2, 1, 1, 1], &[1; 5]];
        for expected in expected {
            guards.push(begin(&budget));
            let shares: Vec<usize> = guards.iter().map(CpuSlot::share).collect();
            assert_eq!(shares, expected);
        }
        let (begun, has_begun) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let slot = begin(&budget);
                begun.send(slot.share()).unwrap();
            });
            assert!(has_begun.recv_timeout(Duration::from_millis(50)).is_err());
            guards.pop();
            assert_eq!(has_begun.recv(), Ok(1));
        });
        // The remaining actions share what the others release.
        guards.truncate(2);
        let shares: Vec<usize> = guards.iter().map(CpuSlot::share).collect();
        assert_eq!(shares, [3, 2]);
        drop(guards);
        assert_eq!(begin(&budget).share(), 5);
    }
}
