//! The executor under a model checker that chooses every interleaving of its threads:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p gpipe-sched --test shuttle --release`.
#![cfg(shuttle)]

#[path = "../common/mod.rs"]
mod common;

mod replicas;

use std::time::Duration;

use common::{Failure, Plan, Trouble, assert_transparent, batch, build, places, ranks};
use gpipe_sched::{InMemory, Part, PipelineError, Place, World, gpipe, one_f_one_b};
use shuttle::rand::{Rng, thread_rng};

const STAGES: usize = 3;
const MICRO_BATCHES: usize = 3;

/// Interleavings of one check: more in the exam, which counts them.
fn interleavings(small: usize, full: usize) -> usize {
    let count = match std::env::var_os("GPIPE_EXAM") {
        Some(_) => full,
        None => small,
    };
    println!("exam F2 {count}/{count}");
    count
}

/// Steps and evaluates: no interleaving deadlocks, and all results are those of a loop.
#[test]
fn every_interleaving_computes_the_same() {
    for make in [gpipe, one_f_one_b] {
        shuttle::check_random(
            move || {
                let schedule = make(STAGES, MICRO_BATCHES).unwrap();
                let mut pipeline = build(schedule, &Plan::default()).unwrap();
                assert_transparent(&mut pipeline, 0);
                assert_eq!(
                    pipeline.forward(batch(1, 4, false)).unwrap().losses.len(),
                    4
                );
                assert_transparent(&mut pipeline, 2);
            },
            interleavings(1_000, 21_000),
        );
    }
}

/// One or two failures at random places: in every interleaving the caller gets one of them, and the
/// next step, which starts at once, is not affected.
#[test]
fn a_failure_anywhere_ends_the_step_and_only_this_step() {
    for make in [gpipe, one_f_one_b] {
        shuttle::check_random(
            move || {
                let schedule = make(STAGES, MICRO_BATCHES).unwrap();
                let places = places(&schedule);
                let plan = Plan::default();
                let mut pipeline = build(schedule, &plan).unwrap();
                for step in 0..2 {
                    let any = || places[thread_rng().gen_range(0..places.len())];
                    let troubles = [(any(), Trouble::Error), (any(), Trouble::Panic)];
                    plan.set(troubles);
                    let error = pipeline.step(batch(step, MICRO_BATCHES, true)).unwrap_err();
                    assert!(
                        troubles
                            .iter()
                            .any(|(place, _)| error.place() == Some(*place))
                    );
                    plan.set(None);
                    assert_transparent(&mut pipeline, step);
                }
            },
            interleavings(1_000, 21_000),
        );
    }
}

/// A deadline that passes at any moment of a step or of a visit: the call ends well or overdue, and the
/// next one is right or names the worker that was left behind. Nobody waits forever, not even to drop
/// the pipeline.
#[test]
fn a_deadline_may_pass_at_any_moment() {
    for make in [gpipe, one_f_one_b] {
        shuttle::check_random(
            move || {
                let schedule = make(STAGES, 2).unwrap();
                let mut pipeline = build(schedule, &Plan::default()).unwrap();
                pipeline.set_deadline(Some(Duration::from_secs(1)));
                let stepped = pipeline.step(batch(0, 2, true)).err();
                let visited = pipeline.each(|_, _| Ok::<_, Failure>(())).err();
                let looked = pipeline.with_loss_stage(|_| Ok::<_, Failure>(())).err();
                let mut lost = 0;
                for error in [stepped, visited, looked].into_iter().flatten() {
                    match error {
                        PipelineError::Overdue { .. } => {}
                        PipelineError::Gone { .. } => lost += 1,
                        error => panic!("{error}"),
                    }
                }
                pipeline.set_deadline(None);
                match pipeline.step(batch(1, 2, true)) {
                    Ok(outcome) => assert_eq!((lost, outcome.losses.len()), (0, 2)),
                    Err(error) => assert!(matches!(error, PipelineError::Gone { .. })),
                }
            },
            interleavings(1_000, 21_000),
        );
    }
}

/// A stage that cannot be built: the other workers end.
#[test]
fn a_build_that_fails_leaves_no_thread() {
    shuttle::check_random(
        || {
            let plan = Plan::default();
            let place = Place::Build(Part::Stage(thread_rng().gen_range(0..STAGES)));
            plan.set(Some((place, Trouble::Error)));
            let Err(error) = build(gpipe(STAGES, 2).unwrap(), &plan) else {
                panic!("it was built");
            };
            assert_eq!(error.place(), Some(place));
        },
        interleavings(1_000, 21_000),
    );
}

/// As many devices and micro-batches as a large run has: fewer interleavings, each much longer.
#[test]
fn eight_devices_and_eight_micro_batches() {
    let count = interleavings(100, 2_000);
    shuttle::check_random(
        || {
            let plan = Plan::default();
            let schedule = one_f_one_b(8, 8).unwrap();
            let places = places(&schedule);
            let place = places[thread_rng().gen_range(0..places.len())];
            let mut pipeline = build(schedule, &plan).unwrap();
            plan.set([(place, Trouble::Error)]);
            let error = pipeline.step(batch(0, 8, true)).unwrap_err();
            assert_eq!(error.place(), Some(place));
            plan.set(None);
            assert_transparent(&mut pipeline, 1);
        },
        count,
    );
}

/// What the checker would be worth if it saw nothing: stages with faults, and a sleeper that is
/// never woken in some interleavings.
mod teeth {
    use super::*;
    use common::Planted;
    use shuttle::sync::{Arc, Condvar, Mutex};

    fn caught(check: impl Fn() + Send + Sync + 'static) -> bool {
        let run = std::panic::AssertUnwindSafe(|| shuttle::check_random(check, 2_000));
        std::panic::catch_unwind(run).is_err()
    }

    /// Looks, and then sleeps: a wake-up in between is lost.
    fn lost_wake_up() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = shared.clone();
        let thread = shuttle::thread::spawn(move || {
            *other.0.lock().unwrap() = true;
            other.1.notify_one();
        });
        let ready = *shared.0.lock().unwrap();
        if !ready {
            let guard = shared.0.lock().unwrap();
            drop(shared.1.wait(guard).unwrap());
        }
        thread.join().unwrap();
    }

    fn failing_step(planted: Option<Planted>) {
        let schedule = one_f_one_b(2, 2).unwrap();
        let places = places(&schedule);
        let plan = Plan::faulty(planted);
        let mut pipeline = build(schedule, &plan).unwrap();
        for place in places {
            plan.set([(place, Trouble::Error)]);
            let error = pipeline.step(batch(0, 2, true)).unwrap_err();
            assert_eq!(error.place(), Some(place));
            plan.set(None);
            assert_transparent(&mut pipeline, 1);
        }
    }

    #[test]
    fn every_planted_fault_is_caught() {
        assert!(!caught(|| failing_step(None)), "no fault was planted");
        assert!(caught(lost_wake_up));
        // One that is stuck would be stuck here too, and what an error says of itself is not looked
        // at here: the suite has these.
        let faults = [Planted::Silent, Planted::Unclean];
        for planted in faults {
            assert!(
                caught(move || failing_step(Some(planted))),
                "{planted:?} went unseen"
            );
        }
        println!("exam F2 teeth {0}/{0}", faults.len() + 1);
    }
}

/// Two ranks, with a failure at any place of any step: in every interleaving both get it, and the next step
/// is right on both.
#[test]
fn ranks_step_and_fail_together() {
    shuttle::check_random(
        || {
            let schedule = one_f_one_b(STAGES, 2).unwrap();
            let all = places(&schedule);
            let place = all[thread_rng().gen_range(0..all.len())];
            let ranks = InMemory::new(2).into_iter().map(|transport| {
                let schedule = schedule.clone();
                shuttle::thread::spawn(move || {
                    let (plan, world) = (Plan::default(), World::new(transport));
                    let mut pipeline = ranks::join(schedule, &plan, &world).unwrap();
                    ranks::step(&mut pipeline, 0).unwrap();
                    plan.set([(place, Trouble::Error)]);
                    assert!(pipeline.step(batch(1, 2, true)).is_err());
                    plan.set(None);
                    ranks::step(&mut pipeline, 2).unwrap();
                })
            });
            for rank in ranks.collect::<Vec<_>>() {
                rank.join().unwrap();
            }
        },
        interleavings(500, 7_000),
    );
}
