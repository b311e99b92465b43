//! Flows of a step, which are taken by name, and what ends the waiting for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

fn tag(epoch: u64, stage: usize, micro_batch: usize) -> Tag {
    let transfer = Transfer::new(Direction::Forward, stage, micro_batch);
    Tag { epoch, transfer }
}

/// Two devices; the second runs stages 1 and 2.
fn mailboxes() -> Mailboxes<&'static str> {
    let mailboxes = Mailboxes::new(2, &[0, 1, 1], None);
    mailboxes.open(1, 3, Clock::start());
    mailboxes
}

/// Receives a flow without a reservation.
fn take<F>(mailboxes: &Mailboxes<F>, tag: Tag) -> Result<(F, f64), Refusal> {
    let arrived = mailboxes.recv(tag, || None)?;
    Ok((arrived.flow, arrived.time))
}

#[test]
fn flows_are_taken_by_name_in_any_order() {
    let mailboxes = mailboxes();
    for (tag, flow, now) in [
        (tag(1, 1, 0), "a", 1.0),
        (tag(1, 2, 0), "b", 2.0),
        (tag(1, 1, 2), "c", 3.0),
    ] {
        assert_eq!(mailboxes.send(tag, flow, now), Ok(()));
    }
    let taken = [tag(1, 1, 2), tag(1, 1, 0), tag(1, 2, 0)].map(|tag| take(&mailboxes, tag));
    assert_eq!(taken, [Ok(("c", 3.0)), Ok(("a", 1.0)), Ok(("b", 2.0))]);
}

#[test]
fn what_is_sent_twice_or_does_not_exist_is_refused() {
    let mailboxes = mailboxes();
    assert_eq!(mailboxes.send(tag(1, 1, 0), "a", 0.0), Ok(()));
    assert_eq!(mailboxes.send(tag(1, 1, 0), "b", 0.0), Err(Refusal::Twice));
    assert!(mailboxes.holds(tag(1, 1, 0)) && !mailboxes.holds(tag(1, 1, 1)));
    assert_eq!(take(&mailboxes, tag(1, 1, 0)), Ok(("a", 0.0)));
    for wrong in [tag(1, 3, 0), tag(1, 0, 3), tag(1, 0, usize::MAX)] {
        assert_eq!(mailboxes.send(wrong, "a", 0.0), Err(Refusal::Unknown));
        assert_eq!(take(&mailboxes, wrong), Err(Refusal::Unknown));
        assert!(!mailboxes.holds(wrong));
    }
}

#[test]
fn a_step_hears_nothing_of_an_older_one() {
    let mailboxes = mailboxes();
    assert_eq!(mailboxes.send(tag(1, 1, 0), "old", 0.0), Ok(()));
    mailboxes.open(2, 3, Clock::start());
    assert_eq!(
        mailboxes.send(tag(1, 1, 0), "late", 0.0),
        Err(Refusal::Unknown)
    );
    mailboxes.stop(1);
    assert_eq!(mailboxes.send(tag(2, 1, 0), "new", 0.0), Ok(()));
    assert_eq!(take(&mailboxes, tag(2, 1, 0)), Ok(("new", 0.0)));
}

/// Counts as one as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_with_a_reservation() {
    for stops in [false, true] {
        let mailboxes = mailboxes();
        let reserved = Arc::new(AtomicUsize::new(0));
        let reserve = || -> Option<Reserve> {
            let reserved = reserved.clone();
            Some(Box::new(move || {
                reserved.fetch_add(1, Ordering::Relaxed);
                Box::new(Counted(reserved))
            }))
        };
        thread::scope(|scope| {
            let worker = scope.spawn(|| mailboxes.recv(tag(1, 1, 0), reserve));
            let sleeps = || mailboxes.mailboxes[1].lock().wanted.is_some();
            while !sleeps() {
                thread::yield_now();
            }
            // Of another flow, the worker hears nothing.
            assert_eq!(mailboxes.send(tag(1, 1, 1), "b", 0.0), Ok(()));
            assert_eq!(reserved.load(Ordering::Relaxed), 0);
            mailboxes.mailboxes[1].lock().stopped = stops;
            assert_eq!(mailboxes.send(tag(1, 1, 0), "a", 0.0), Ok(()));
            let arrived = worker.join().expect("it does not panic");
            let held = arrived.as_ref().map(|a| (a.flow, a.reservation.is_some()));
            match stops {
                false => assert_eq!(held, Ok(("a", true))),
                true => assert_eq!(held, Err(&Refusal::Stopped)),
            }
            assert_eq!(reserved.load(Ordering::Relaxed), usize::from(!stops));
        });
        assert_eq!(reserved.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_stop_is_for_one_step_and_a_close_for_all() {
    let mailboxes = mailboxes();
    mailboxes.stop(1);
    assert_eq!(take(&mailboxes, tag(1, 0, 0)), Err(Refusal::Stopped));
    mailboxes.open(2, 3, Clock::start());
    assert_eq!(mailboxes.send(tag(2, 0, 0), "a", 0.0), Ok(()));
    assert_eq!(take(&mailboxes, tag(2, 0, 0)), Ok(("a", 0.0)));
    mailboxes.close();
    mailboxes.open(3, 3, Clock::start());
    assert_eq!(take(&mailboxes, tag(3, 0, 0)), Err(Refusal::Stopped));
}
