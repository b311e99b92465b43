//! The executor under a model checker that chooses every interleaving of its threads:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p gpipe-sched --test shuttle --release`.
#![cfg(shuttle)]

mod common;

use common::{Plan, Trouble, assert_transparent, batch, build, places};
use gpipe_sched::{Part, Place, gpipe, one_f_one_b};
use shuttle::rand::{Rng, thread_rng};

const STAGES: usize = 3;
const MICRO_BATCHES: usize = 3;
const INTERLEAVINGS: usize = 3_000;

/// Steps, evaluates and visits: nothing deadlocks, whoever runs first, and all is as in a loop.
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
            INTERLEAVINGS,
        );
    }
}

/// Something goes wrong at one or two places chosen anew each time: the caller hears of one of them
/// in every interleaving, and the next step, which starts at once, hears nothing.
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
            INTERLEAVINGS,
        );
    }
}

/// A stage that cannot be made: the others are let go.
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
        INTERLEAVINGS,
    );
}
