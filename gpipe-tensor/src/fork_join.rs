//! Fork and join of one piece of work: helper threads may join while the owner works on it.
//!
//! A scope of threads ends when the last of them has begun and ended, so an operation of a few
//! microseconds would wait for threads that are still waking up when no work is left. Here the owner
//! closes the job when its own call returns, and waits only for helpers that joined before.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Checks for active helpers before the owner blocks: some tens of microseconds, the time in which a
/// blocked thread wakes up.
const CHECKS: usize = 300;
/// Spin-loop hints between two checks.
const SPINS: usize = 8;

/// Runs `work` on the calling thread (the owner) and on up to `helpers` other threads.
///
/// `spawn` receives one closure per helper and hands it to another thread. A closure that starts after
/// the owner's own call of `work` returns does nothing. Returns when no thread runs `work`.
///
/// # Panics
/// If `work` panics on any thread, after all threads have left it.
pub(crate) fn run(
    work: &(dyn Fn() + Sync),
    helpers: usize,
    mut spawn: impl FnMut(Box<dyn FnOnce() + Send>),
) {
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
        state: Mutex::new(State {
            is_open: true,
            active: 0,
            panic: None,
        }),
        idle: Condvar::new(),
    }));
    for _ in 0..helpers {
        let job = owner.0.clone();
        spawn(Box::new(move || job.help()));
    }
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

/// Work shared between its owner and helpers.
struct Job {
    work: NonNull<dyn Fn() + Sync>,
    state: Mutex<State>,
    /// Notified when no helper is active.
    idle: Condvar,
}

/// What a job's mutex protects.
struct State {
    /// Whether helpers may still join.
    is_open: bool,
    /// Helpers that run the work now.
    active: usize,
    /// Payload of the first helper that panicked.
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: the work may be called from any thread (`Sync`), and is never moved or dropped through the
// pointer; all else is behind a mutex.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of the work is caught before it could reach a guard.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work on a helper thread, unless the job is closed.
    fn help(&self) {
        {
            let mut state = self.state();
            if !state.is_open {
                return;
            }
            state.active += 1;
        }
        // SAFETY: this helper is active, so the owner still waits (see `run`).
        let work = unsafe { self.work.as_ref() };
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.state();
        state.active -= 1;
        if let Err(panic) = outcome {
            state.panic.get_or_insert(panic);
        }
        if state.active == 0 {
            self.idle.notify_all();
        }
    }

    /// Closes the job, waits for the active helpers, and returns a helper's panic, if any.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        self.state().is_open = false;
        for _ in 0..CHECKS {
            if self.state().active == 0 {
                break;
            }
            (0..SPINS).for_each(|_| std::hint::spin_loop());
        }
        let mut state = self.state();
        while state.active > 0 {
            state = (self.idle.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn a_helper_that_never_starts_is_not_waited_for() {
        let runs = AtomicUsize::new(0);
        let mut late = Vec::new();
        let work = || {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        run(&work, 3, |helper| late.push(helper));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        // A helper that starts late finds the job closed: the work may no longer exist.
        late.into_iter().for_each(|helper| helper());
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
            run(&work, 1, |helper| helpers.push(thread::spawn(helper)));
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
                run(&work, 1, |helper| helpers.push(thread::spawn(helper)));
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
        let (send, receive) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let host = thread::spawn(move || receive.into_iter().for_each(|helper| helper()));
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
            run(&work, 1, |helper| {
                send.send(helper).expect("the host lives")
            });
            assert_eq!(sum.into_inner(), 4 * round);
        }
        drop(send);
        host.join().expect("the host ends");
    }
}
