//! Shares the CPU thread budget among running actions.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[cfg(all(target_os = "linux", not(miri)))]
use crate::placement::{Sent, Sleeper};

thread_local! {
    /// Whether this thread runs an action.
    static HAS_SLOT: Cell<bool> = const { Cell::new(false) };
}

/// The thread budget of a host, divided evenly among running actions.
pub(crate) struct ThreadBudget {
    threads: usize,
    actions: Mutex<Actions>,
    /// Whether there are as many actions as threads, so that no operation has a helper.
    is_full: AtomicBool,
    /// Notified when an action ends.
    freed: Condvar,
}

/// The actions that threads are shared among.
#[derive(Default)]
struct Actions {
    /// The share of each running action, in order of start.
    running: Vec<Arc<AtomicUsize>>,
    /// The number of those to come, whose workers wake up.
    reserved: usize,
}

impl ThreadBudget {
    /// A budget of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            actions: Mutex::default(),
            is_full: AtomicBool::new(false),
            freed: Condvar::new(),
        }
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Starts an action: waits while as many actions run as there are threads.
    pub fn begin(self: &Arc<Self>, share: Arc<AtomicUsize>) -> CpuSlot {
        let mut actions = self.lock();
        while actions.running.len() >= self.threads {
            let freed = self.freed.wait(actions);
            actions = freed.unwrap_or_else(PoisonError::into_inner);
        }
        actions.running.push(share.clone());
        self.share_out(&actions);
        HAS_SLOT.set(true);
        CpuSlot {
            budget: Some(self.clone()),
            share,
        }
    }

    /// Keeps a share for an action to come until the result is dropped.
    fn reserve(self: Arc<Self>) -> ReservedShare {
        let mut actions = self.lock();
        actions.reserved += 1;
        self.share_out(&actions);
        drop(actions);
        ReservedShare(self)
    }

    /// Whether no operation has a helper until an action ends.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn end(&self, share: &Arc<AtomicUsize>) {
        let mut actions = self.lock();
        let running = &mut actions.running;
        if let Some(place) = running.iter().position(|one| Arc::ptr_eq(one, share)) {
            running.remove(place);
        }
        // Outside of actions, operations of a handle may use all threads.
        share.store(self.threads, Ordering::Relaxed);
        self.share_out(&actions);
        drop(actions);
        self.freed.notify_one();
    }

    /// Recomputes all shares; the longest-running actions get the remainder. A running operation keeps
    /// its threads, and the next operation of its action uses the new share.
    fn share_out(&self, actions: &Actions) {
        let all = actions.running.len() + actions.reserved;
        self.is_full.store(all >= self.threads, Ordering::Relaxed);
        for (place, share) in actions.running.iter().enumerate() {
            let more = usize::from(place < self.threads % all);
            // An action with a reservation counts twice while it begins.
            let own = (self.threads / all + more).max(1);
            share.store(own, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Actions> {
        // Nothing panics while the lock is held.
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
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

impl fmt::Debug for CpuSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuSlot")
            .field("share", &self.share())
            .finish_non_exhaustive()
    }
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
            HAS_SLOT.set(false);
        }
    }
}

/// A reservation of a [`CpuSlot`] for a thread that wakes up: see [`Device::cpu_reservation`](crate::Device::cpu_reservation).
#[must_use]
pub struct CpuReservation {
    _share: ReservedShare,
    #[cfg(all(target_os = "linux", not(miri)))]
    _sent: Option<Sent>,
}

impl fmt::Debug for CpuReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuReservation").finish_non_exhaustive()
    }
}

impl CpuReservation {
    /// What another thread calls before it wakes the calling one.
    pub(crate) fn for_this_thread(budget: Arc<ThreadBudget>) -> impl FnOnce() -> Self + Send {
        #[cfg(all(target_os = "linux", not(miri)))]
        let sleeper = Sleeper::this_thread();
        move || Self {
            _share: budget.reserve(),
            #[cfg(all(target_os = "linux", not(miri)))]
            _sent: sleeper.send(HAS_SLOT.get()),
        }
    }
}

/// A share that is kept for an action to come.
struct ReservedShare(Arc<ThreadBudget>);

impl Drop for ReservedShare {
    fn drop(&mut self) {
        let mut actions = self.0.lock();
        actions.reserved -= 1;
        self.0.share_out(&actions);
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
    fn a_reserved_share_is_not_used_by_others() {
        let budget = Arc::new(ThreadBudget::new(3));
        let first = begin(&budget);
        assert_eq!((first.share(), budget.is_full()), (3, false));
        let reserved = budget.clone().reserve();
        assert_eq!((first.share(), budget.is_full()), (2, false));
        let more = [0; 3].map(|_| budget.clone().reserve());
        assert_eq!((first.share(), budget.is_full()), (1, true));
        // Reservations make no action wait.
        let others = [begin(&budget), begin(&budget)];
        assert_eq!(others.each_ref().map(CpuSlot::share), [1, 1]);
        drop((more, others));
        assert_eq!((first.share(), budget.is_full()), (2, false));
        drop(reserved);
        assert_eq!(first.share(), 3);
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
