//! Work that a thread begins and others may join in while it lasts.
//!
//! A scope of threads ends when the last of them has begun and ended, so an operation of a few
//! microseconds would wait for threads that are still waking up when nothing is left for them. Here the
//! lender closes the door when it is done, and waits only for those who came in before.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How often a lender looks whether the last guests are out before it goes to sleep: for some tens of
/// microseconds, as long as it takes to wake a thread up.
const GLANCES: usize = 300;
/// Hints to the processor between two glances.
const PAUSES: usize = 8;

/// Runs `work` on the calling thread and on each thread on which `invite` runs what it is given before
/// the calling thread is done, so many times at most. Returns when nobody works on it any more.
///
/// # Panics
/// If `work` does, on any of the threads; the others end theirs first.
pub(crate) fn lend(
    work: &(dyn Fn() + Sync),
    guests: usize,
    mut invite: impl FnMut(Box<dyn FnOnce() + Send>),
) {
    // SAFETY: only the lifetime changes. The work is called by guests alone, between coming in, which
    // needs an open door, and going out; `work` outlives `lender`, which closes the door and waits
    // until all are out before it goes, even if the calling thread unwinds.
    let lent: NonNull<dyn Fn() + Sync> = unsafe {
        std::mem::transmute::<NonNull<dyn Fn() + Sync + '_>, NonNull<dyn Fn() + Sync>>(
            NonNull::from(work),
        )
    };
    let lender = Lender(Arc::new(House {
        work: lent,
        room: Mutex::new(Room {
            is_open: true,
            inside: 0,
            panic: None,
        }),
        left: Condvar::new(),
    }));
    for _ in 0..guests {
        let house = lender.0.clone();
        invite(Box::new(move || house.visit()));
    }
    work();
    let panic = lender.0.close();
    drop(lender);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// The calling thread's hold on what it lends.
struct Lender(Arc<House>);

impl Drop for Lender {
    fn drop(&mut self) {
        // Where the calling thread panicked, its own panic is the one that is told.
        self.0.close();
    }
}

struct House {
    work: NonNull<dyn Fn() + Sync>,
    room: Mutex<Room>,
    left: Condvar,
}

struct Room {
    is_open: bool,
    inside: usize,
    /// What the first guest that panicked said.
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: the work may be called from any thread (`Sync`), and is never moved or dropped through the
// pointer; all else is behind a mutex.
unsafe impl Send for House {}
// SAFETY: as above.
unsafe impl Sync for House {}

impl House {
    fn room(&self) -> MutexGuard<'_, Room> {
        // A panic of the work is caught before it could reach a guard.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes part in the work, unless the door is closed already.
    fn visit(&self) {
        {
            let mut room = self.room();
            if !room.is_open {
                return;
            }
            room.inside += 1;
        }
        // SAFETY: this thread is inside, so the lender has not gone yet (see `lend`).
        let work = unsafe { self.work.as_ref() };
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let mut room = self.room();
        room.inside -= 1;
        if let Err(panic) = outcome {
            room.panic.get_or_insert(panic);
        }
        if room.inside == 0 {
            self.left.notify_all();
        }
    }

    /// Lets nobody in any more, waits until all are out, and tells what went wrong there.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        self.room().is_open = false;
        for _ in 0..GLANCES {
            if self.room().inside == 0 {
                break;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        let mut room = self.room();
        while room.inside > 0 {
            room = (self.left.wait(room)).unwrap_or_else(PoisonError::into_inner);
        }
        room.panic.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn nobody_waits_for_a_guest_who_did_not_come() {
        let runs = AtomicUsize::new(0);
        let mut late = Vec::new();
        let work = || {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        lend(&work, 3, |guest| late.push(guest));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        // Those who come late find the door closed: the work may be gone by now.
        late.into_iter().for_each(|guest| guest());
        assert_eq!(runs.into_inner(), 1);
    }

    #[test]
    fn a_guest_inside_is_waited_for() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let met = Barrier::new(2);
            let done = AtomicUsize::new(0);
            let work = || {
                met.wait();
                thread::yield_now();
                done.fetch_add(1, Ordering::Relaxed);
            };
            let mut guests = Vec::new();
            lend(&work, 1, |guest| guests.push(thread::spawn(guest)));
            assert_eq!(done.load(Ordering::Relaxed), 2);
            guests
                .into_iter()
                .for_each(|guest| guest.join().expect("the guest's panics are caught"));
        }
    }

    #[test]
    fn a_panic_of_either_side_reaches_the_lender_when_all_are_out() {
        for is_guest_to_panic in [true, false] {
            let met = Barrier::new(2);
            let lender = thread::current().id();
            let out = AtomicUsize::new(0);
            let work = || {
                met.wait();
                if (thread::current().id() == lender) != is_guest_to_panic {
                    panic!("planted");
                }
                thread::yield_now();
                out.fetch_add(1, Ordering::Relaxed);
            };
            let mut guests = Vec::new();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                lend(&work, 1, |guest| guests.push(thread::spawn(guest)));
            }));
            let said = outcome.expect_err("a panic reaches the lender");
            assert_eq!(said.downcast_ref::<&str>(), Some(&"planted"));
            assert_eq!(out.load(Ordering::Relaxed), 1);
            guests
                .into_iter()
                .for_each(|guest| guest.join().expect("the guest's panics are caught"));
        }
    }

    #[test]
    fn guests_come_and_go_at_any_time() {
        let (send, receive) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let host = thread::spawn(move || receive.into_iter().for_each(|guest| guest()));
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
            lend(&work, 1, |guest| send.send(guest).expect("the host lives"));
            assert_eq!(sum.into_inner(), 4 * round);
        }
        drop(send);
        host.join().expect("the host ends");
    }
}
