//! Fork and join of one piece of work: helper threads may join while the owner works on it.
//!
//! A scope of threads ends when the last of them has begun and ended, so an operation of a few
//! microseconds would wait for threads that are still waking up when no work is left. Here the owner
//! closes the job when its own call returns, and waits only for helpers that joined before.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// Checks for active helpers before the owner blocks: some tens of microseconds, the time in which a
/// blocked thread wakes up.
const CHECKS: usize = 300;
/// Spin-loop hints between two checks.
const SPINS: usize = 8;

/// Runs `work` on the calling thread (the owner) and on helper threads.
///
/// `invite` receives the job and hands it to other threads, each of which calls [`Job::help`]. One that does so
/// after the owner's own call of `work` has returned does nothing. Returns when no thread runs `work`.
///
/// # Panics
/// If `work` panics on any thread, after all threads have left it.
pub(crate) fn run(work: &(dyn Fn() + Sync), invite: impl FnOnce(&Arc<Job>)) {
    // SAFETY: only the lifetime changes. Helpers alone call the work through the pointer, between
    // joining, which needs an open job, and leaving; `work` outlives `owner`, which closes the job and
    // waits until all helpers have left before it goes, even if the calling thread unwinds.
    let erased: NonNull<dyn Fn() + Sync> = unsafe {
        std::mem::transmute::<NonNull<dyn Fn() + Sync + '_>, NonNull<dyn Fn() + Sync>>(
            NonNull::from(work),
        )
    };
    let owner = Owner(Arc::new(Job {
        work: erased,
        state: AtomicUsize::new(OPEN),
        owner: thread::current(),
        panic: Mutex::default(),
    }));
    invite(&owner.0);
    work();
    let panic = owner.0.close();
    drop(owner);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// The calling thread's handle on its job; closes it on drop.
struct Owner(Arc<Job>);

impl Drop for Owner {
    fn drop(&mut self) {
        // If the calling thread panicked, its own panic propagates, not that of a helper.
        self.0.close();
    }
}

/// The bit of a job's state that says whether helpers may still join.
const OPEN: usize = 1 << (usize::BITS - 1);

/// Work shared between its owner and helpers.
pub(crate) struct Job {
    work: NonNull<dyn Fn() + Sync>,
    /// [`OPEN`] or not, and the number of helpers that run the work now.
    state: AtomicUsize,
    /// Unparked when the last helper has left a closed job.
    owner: Thread,
    /// Payload of the first helper that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the work may be called from any thread (`Sync`), and is never moved or dropped through the
// pointer; all else is atomic or behind a mutex.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Runs the work on a helper thread, unless the job is closed; whether it did. `before_leaving` is called after the work,
    /// while the owner still waits.
    pub fn help(&self, before_leaving: impl FnOnce()) -> bool {
        let join = |state| (state & OPEN != 0).then_some(state + 1);
        let joined = (self.state).fetch_update(Ordering::Acquire, Ordering::Relaxed, join);
        if joined.is_err() {
            return false;
        }
        // SAFETY: this helper is active, so the owner still waits (see `run`).
        let work = unsafe { self.work.as_ref() };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            self.panic().get_or_insert(panic);
        }
        before_leaving();
        // What it wrote is seen by the owner, which reads the state.
        if self.state.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.unpark();
        }
        true
    }

    /// Closes the job, waits for the active helpers, and returns a helper's panic, if any.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        let is_left = || self.state.load(Ordering::Acquire) == 0;
        for _ in 0..CHECKS {
            if is_left() {
                break;
            }
            (0..SPINS).for_each(|_| std::hint::spin_loop());
        }
        while !is_left() {
            thread::park();
        }
        self.panic().take()
    }

    fn panic(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        // Nothing panics while the lock is held.
        self.panic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};
    use std::thread::JoinHandle;

    use super::*;

    /// A thread that helps.
    fn helper(job: &Arc<Job>) -> JoinHandle<()> {
        let job = job.clone();
        thread::spawn(move || {
            job.help(|| {});
        })
    }

    #[test]
    fn a_helper_that_never_starts_is_not_waited_for() {
        let runs = AtomicUsize::new(0);
        let mut late = Vec::new();
        let work = || {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        run(&work, |job| late.push(job.clone()));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        // A helper that starts late finds the job closed: the work may no longer exist.
        assert!(late.into_iter().all(|job| !job.help(|| {})));
        assert_eq!(runs.into_inner(), 1);
    }

    #[test]
    fn an_active_helper_is_waited_for() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let met = Barrier::new(2);
            let done = AtomicUsize::new(0);
            let work = || {
                met.wait();
                thread::yield_now();
                done.fetch_add(1, Ordering::Relaxed);
            };
            let mut helpers = Vec::new();
            run(&work, |job| helpers.push(helper(job)));
            assert_eq!(done.load(Ordering::Relaxed), 2);
            helpers
                .into_iter()
                .for_each(|helper| helper.join().expect("the helper's panics are caught"));
        }
    }

    #[test]
    fn a_panic_of_either_side_reaches_the_owner_after_all_have_left() {
        for helper_panics in [true, false] {
            let met = Barrier::new(2);
            let owner = thread::current().id();
            let out = AtomicUsize::new(0);
            let work = || {
                met.wait();
                if (thread::current().id() == owner) != helper_panics {
                    panic!("planted");
                }
                thread::yield_now();
                out.fetch_add(1, Ordering::Relaxed);
            };
            let mut helpers = Vec::new();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                run(&work, |job| helpers.push(helper(job)));
            }));
            let said = outcome.expect_err("a panic reaches the owner");
            assert_eq!(said.downcast_ref::<&str>(), Some(&"planted"));
            assert_eq!(out.load(Ordering::Relaxed), 1);
            helpers
                .into_iter()
                .for_each(|helper| helper.join().expect("the helper's panics are caught"));
        }
    }

    #[test]
    fn helpers_join_and_leave_at_any_time() {
        let (send, receive) = mpsc::channel::<Arc<Job>>();
        let host = thread::spawn(move || {
            for job in receive {
                job.help(|| {});
            }
        });
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        for round in 0..rounds {
            // What the work borrows is gone after each round.
            let left = Mutex::new(vec![round; 4]);
            let sum = AtomicUsize::new(0);
            let work = || {
                while let Some(x) = left.lock().expect("nobody panics").pop() {
                    sum.fetch_add(x, Ordering::Relaxed);
                }
            };
            run(&work, |job| {
                send.send(job.clone()).expect("the host lives");
            });
            assert_eq!(sum.into_inner(), 4 * round);
        }
        drop(send);
        host.join().expect("the host ends");
    }
}
