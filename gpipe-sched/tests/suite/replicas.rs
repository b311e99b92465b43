//! Replicas of a pipeline over ranks: the sums of their gradients, and failures of one or of both.

use gpipe_sched::{InMemory, Part, Place};

use crate::common::replicas::{Adds, MORE, UNEVEN, WAY, Way, all_places, fails, on_ranks};
use crate::common::{Plan, Trouble};

#[test]
fn replicas_sum_what_a_loop_does() {
    for (way, ranks) in [(WAY, 2), (WAY, 4), (MORE, 2), (UNEVEN, 2), (UNEVEN, 4)] {
        on_ranks(InMemory::new(ranks), move |world| {
            let mut pipeline = way.join(&Plan::default(), &world).unwrap();
            for step in 0..3 {
                way.step(&mut pipeline, step).unwrap();
            }
        });
    }
}

#[test]
fn a_failure_anywhere_ends_the_step_of_all_replicas() {
    for ranks in [2, 4] {
        for replica in 0..WAY.replicas {
            for place in all_places(WAY, replica) {
                for trouble in [Trouble::Error, Trouble::Panic] {
                    fails(WAY, ranks, vec![(replica, place, trouble)]);
                }
            }
        }
    }
}

/// Each waits for what the failed stage of the other replica had to give.
#[test]
fn failures_of_two_stages_of_two_replicas_end_the_sums_of_all() {
    for ranks in [2, 4] {
        for stages in [[0, 1], [1, 0], [1, 1]] {
            let troubles = stages.into_iter().enumerate().map(|(replica, stage)| {
                (replica, Place::Visit(Part::Stage(stage)), Trouble::Error)
            });
            fails(WAY, ranks, troubles.collect());
        }
    }
}

/// Sums in another order, or without a part: the comparison sees them.
#[test]
fn other_sums_are_seen() {
    for adds in [Adds::OwnFirst, Adds::AllButOne] {
        let wrong = std::panic::catch_unwind(|| {
            on_ranks(InMemory::new(2), move |world| {
                let way = Way { adds, ..UNEVEN };
                let mut pipeline = way.join(&Plan::default(), &world).unwrap();
                way.step(&mut pipeline, 0).unwrap();
            });
        });
        assert!(wrong.is_err(), "{adds:?} went unseen");
    }
}
