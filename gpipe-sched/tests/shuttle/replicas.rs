//! Replicas of a pipeline over ranks: their sums, the exchange that closes a call, failures at every action and faults
//! of every message, in interleavings that the checker chooses.

use std::sync::Arc;
use std::time::Duration;

use gpipe_sched::{InMemory, Part, Place, Transport as _};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, Runner};

use crate::common::faulty::{Fault, Faulty};
use crate::common::replicas::{Adds, MORE, UNEVEN, WAY, Way, all_places, fails, on_ranks};
use crate::common::{Plan, Trouble};
use crate::interleavings;

/// The sums over replicas of one and of several ranks are those of a loop in every interleaving.
#[test]
fn every_interleaving_sums_the_same() {
    for (way, ranks) in [(WAY, 2), (WAY, 4), (MORE, 2), (UNEVEN, 4)] {
        let check = move || {
            on_ranks(InMemory::new(ranks), move |world| {
                let mut pipeline = way.join(&Plan::default(), &world).unwrap();
                for step in 0..2 {
                    way.step(&mut pipeline, step).unwrap();
                }
                assert!(pipeline.any(world.rank() == 1).unwrap());
            });
        };
        shuttle::check_random(check, interleavings(200, 2_000));
    }
}

/// An error and a panic at every place of either replica, the sums included.
#[test]
fn a_failure_anywhere_ends_the_step_of_all_replicas() {
    for ranks in [2, 4] {
        for replica in 0..WAY.replicas {
            for place in all_places(WAY, replica) {
                for trouble in [Trouble::Error, Trouble::Panic] {
                    let check = move || fails(WAY, ranks, vec![(replica, place, trouble)]);
                    shuttle::check_random(check, interleavings(4, 60));
                }
            }
        }
    }
}

/// Failures of both replicas at once, anywhere: also of a stage of one and of another stage of the other, whose
/// neighbours then wait for each other.
#[test]
fn failures_of_both_replicas_end_the_step_of_all() {
    for ranks in [2, 4] {
        let check = move || {
            let troubles = (0..WAY.replicas).map(|replica| {
                let all = all_places(WAY, replica);
                let place = all[thread_rng().gen_range(0..all.len())];
                (replica, place, Trouble::Error)
            });
            fails(WAY, ranks, troubles.collect());
        };
        shuttle::check_random(check, interleavings(500, 8_000));
    }
    let visits = [(0, 1), (1, 0)].map(|(replica, stage)| {
        let place = Place::Visit(Part::Stage(stage));
        (replica, place, Trouble::Error)
    });
    let check = move || fails(WAY, 2, visits.to_vec());
    shuttle::check_random(check, interleavings(500, 4_000));
}

/// A scheduler that lets limits pass only when no other thread can go on: they are long enough for everything else.
struct Patient(RandomScheduler);

impl Scheduler for Patient {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let is_alarm = |task: &Task| task.name().as_deref() == Some("alarm");
        let others = runnable.iter().copied().filter(|task| !is_alarm(task));
        let others: Vec<&Task> = others.collect();
        // What could wake up for no reason cannot go on.
        match others.iter().any(|task| task.runnable()) {
            true => self.0.next_task(&others, current, is_yielding),
            false => self.0.next_task(runnable, current, is_yielding),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

fn check_patiently(check: impl Fn() + Send + Sync + 'static, interleavings: usize) {
    let scheduler = Patient(RandomScheduler::new(interleavings));
    Runner::new(scheduler, Config::new()).run(check);
}

/// What is known of a step in which a message had a fault.
#[derive(Default)]
struct Seen {
    /// Messages that the rank with the fault sent.
    sent: usize,
    noticed: Vec<String>,
}

/// Two steps with a fault in a message of a rank, under limits that pass when nobody can go on.
fn with_fault(
    way: Way,
    ranks: usize,
    chosen: (usize, usize),
    fault: Option<Fault>,
    limit: Option<Duration>,
) -> Seen {
    let (victim, message) = chosen;
    let mut count: Option<Box<dyn Fn() -> usize + Send>> = None;
    let mut ends = Vec::new();
    for inner in InMemory::new(ranks) {
        let is_victim = inner.rank() == victim;
        let end = Faulty::new(inner, fault.filter(|_| is_victim), message);
        if is_victim {
            count = Some(Box::new(end.counter()));
        }
        ends.push(end);
    }
    // Locked between two scheduling points only.
    let noticed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = noticed.clone();
    on_ranks(ends, move |world| {
        let run = || {
            let mut pipeline = way.join(&Plan::default(), &world)?;
            pipeline.set_deadline(limit);
            for step in 0..2 {
                way.step(&mut pipeline, step)?;
            }
            // Every message before it is followed by one of it.
            pipeline.any(false).map(drop)
        };
        let result = run();
        if let Err(error) = &result {
            world.fail(&error.to_string(), 1);
        }
        let is_over = world.is_over();
        let text = result.err().map(|error| error.to_string());
        let text = text.or_else(|| is_over.then(|| "the run is over".to_owned()));
        told.lock().unwrap().extend(text);
    });
    let noticed = noticed.lock().unwrap().clone();
    let sent = count.map_or(0, |count| count());
    Seen { sent, noticed }
}

/// Limits of the calls: how long they are does not matter.
const LIMIT: Option<Duration> = Some(Duration::from_secs(1));

const FAULTS: [Fault; 4] = [
    Fault::Dropped,
    Fault::Doubled,
    Fault::Reordered,
    Fault::Corrupted,
];

/// Messages that each rank sends in two steps without a fault.
fn messages(way: Way, ranks: usize) -> Vec<usize> {
    let found = Arc::new(std::sync::Mutex::new(vec![0; ranks]));
    let told = found.clone();
    let check = move || {
        for rank in 0..ranks {
            let seen = with_fault(way, ranks, (rank, 0), None, LIMIT);
            assert!(seen.noticed.is_empty(), "{:?}", seen.noticed);
            told.lock().unwrap()[rank] = seen.sent;
        }
    };
    check_patiently(check, 1);
    let found = found.lock().unwrap().clone();
    found
}

/// A message that is dropped, doubled, out of order or damaged is noticed, whichever it is and whenever it comes; one
/// that is late changes nothing.
#[test]
fn a_fault_of_any_message_between_replicas_is_noticed() {
    for (way, ranks) in [(WAY, 2), (WAY, 4)] {
        for (rank, sent) in messages(way, ranks).into_iter().enumerate() {
            // Without those of the last call, which nothing follows.
            for message in 0..sent - (ranks - 1) {
                let check = move || {
                    for fault in FAULTS {
                        let seen = with_fault(way, ranks, (rank, message), Some(fault), LIMIT);
                        assert!(!seen.noticed.is_empty(), "{fault:?} of {message} of {rank}");
                    }
                    let late = Some(Fault::Late);
                    let seen = with_fault(way, ranks, (rank, message), late, LIMIT);
                    assert!(
                        seen.noticed.is_empty(),
                        "{message} of {rank}: {:?}",
                        seen.noticed
                    );
                };
                check_patiently(check, interleavings(1, 20));
            }
        }
    }
}

/// The last message of all is lost, which no other one betrays.
fn lost(limit: Option<Duration>) -> Seen {
    let last = with_fault(WAY, 2, (0, 0), None, limit).sent - 1;
    with_fault(WAY, 2, (0, last), Some(Fault::Dropped), limit)
}

#[test]
fn a_message_that_nothing_follows_is_missed_at_the_limit() {
    let check = || {
        let noticed = lost(LIMIT).noticed;
        assert!(noticed.len() == 1 && noticed[0].contains("rank 0 (here): silent for "));
    };
    check_patiently(check, interleavings(100, 1_000));
}

/// Limits that pass at any moment: an error, or what is right; nobody waits without end.
#[test]
fn a_deadline_may_pass_at_any_moment_over_replicas() {
    for ranks in [2, 4] {
        let check = move || {
            with_fault(WAY, ranks, (0, 0), None, LIMIT);
        };
        shuttle::check_random(check, interleavings(500, 8_000));
    }
}

/// What the checks would be worth if they saw nothing.
mod teeth {
    use super::*;

    fn is_caught(check: impl Fn() + Send + Sync + 'static) -> bool {
        let run = std::panic::AssertUnwindSafe(|| check_patiently(check, 50));
        std::panic::catch_unwind(run).is_err()
    }

    #[test]
    fn every_fault_planted_in_replicas_is_caught() {
        let steps = |adds| {
            move || {
                let way = Way { adds, ..UNEVEN };
                let seen = with_fault(way, 2, (0, 0), None, LIMIT);
                assert!(seen.noticed.is_empty(), "{:?}", seen.noticed);
            }
        };
        assert!(!is_caught(steps(Adds::Tree)), "no fault was planted");
        for adds in [Adds::OwnFirst, Adds::AllButOne] {
            assert!(is_caught(steps(adds)), "{adds:?} went unseen");
        }
        println!("exam F2 teeth 2/2");
    }

    /// Without a limit the checker sees a wait without end.
    #[test]
    fn an_endless_wait_is_seen() {
        assert!(is_caught(|| drop(lost(None))));
        println!("exam F2 teeth 1/1");
    }
}
