//! Pipelines over ranks: the same results on every rank, failures told to all, and faults of messages noticed.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gpipe_sched::{
    Action, InMemory, Label, Op, Parcel, PipelineError, Place, Schedule, Transport, World, gpipe,
    interleaved, one_f_one_b, zb_v,
};

use crate::common::faulty::{Fault, Faulty};
use crate::common::ranks::{Numbers, join, step};
use crate::common::{Failure, Plan, Trouble, batch};

/// Runs the same on every rank, a thread each; the results in the order of the ranks.
fn on_ranks<R: Send>(
    transports: Vec<impl Transport>,
    run: impl Fn(Arc<World>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = transports
            .into_iter()
            .map(|transport| scope.spawn(|| run(World::new(transport))))
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

fn schedules() -> Vec<Schedule> {
    let made = [
        gpipe(4, 5),
        one_f_one_b(4, 5),
        interleaved(4, 2, 4),
        zb_v(4, 5),
    ];
    made.map(|made| made.expect("a valid size")).into()
}

#[test]
fn every_rank_has_the_results_of_a_loop() {
    for schedule in schedules() {
        for ranks in [1, 2, 4] {
            on_ranks(InMemory::new(ranks), |world| {
                let mut pipeline = join(schedule.clone(), &Plan::default(), &world).unwrap();
                for at in 0..3 {
                    step(&mut pipeline, at).unwrap();
                    let losses = pipeline.forward(batch(at, 3, false)).unwrap().losses;
                    assert_eq!(losses.len(), 3);
                }
                // A signal on one rank is one of all.
                assert!(pipeline.any(world.rank() + 1 == ranks).unwrap());
                assert!(!pipeline.any(false).unwrap());
                let stages =
                    pipeline.gather_at_root(&Numbers, |stage, _| Ok::<_, Failure>(stage as i64));
                let stages = stages.unwrap();
                match world.rank() {
                    0 => assert!(
                        stages
                            .iter()
                            .copied()
                            .eq(0..pipeline.schedule().stages() as i64)
                    ),
                    _ => assert!(stages.len() < pipeline.schedule().stages()),
                }
                let seen = pipeline.with_loss_stage_across(&Numbers, |_| Ok::<_, Failure>(7));
                assert_eq!(seen.unwrap(), 7);
            });
        }
    }
}

/// Ranks whose clocks start at different times and that begin a step at different times agree on what came first.
#[test]
fn timelines_of_ranks_have_one_clock() {
    const SHIFT: Duration = Duration::from_millis(80);
    let schedule = one_f_one_b(2, 3).unwrap();
    for late in [0, 1] {
        let ends: Vec<_> = InMemory::new(2).into_iter().map(Some).collect();
        let ends = Mutex::new(ends);
        thread::scope(|scope| {
            for rank in 0..2 {
                let (ends, schedule) = (&ends, schedule.clone());
                scope.spawn(move || {
                    let end = ends.lock().unwrap()[rank].take().unwrap();
                    let sleep = |sleeps: bool| sleeps.then(|| thread::sleep(SHIFT));
                    // The one starts its clock later, the other its step.
                    sleep(rank == late);
                    let world = World::new(end);
                    let mut pipeline = join(schedule, &Plan::default(), &world).unwrap();
                    for at in 0..4 {
                        step(&mut pipeline, at).unwrap();
                    }
                    sleep(rank != late);
                    let timeline = pipeline.step(batch(4, 3, true)).unwrap().timeline;
                    let time = |stage, op, micro_batch| {
                        let action = Action::new(stage, op, micro_batch);
                        let found = timeline.spans().iter().find(|span| span.action == action);
                        found.map(|span| (span.start, span.end)).unwrap()
                    };
                    let slack = SHIFT.as_secs_f64() / 4.0;
                    for m in 0..3 {
                        for (giver, taker, op) in [(0, 1, Op::Forward), (1, 0, Op::Backward)] {
                            let (given, taken) = (time(giver, op, m).1, time(taker, op, m).0);
                            assert!(taken > given - slack, "{op:?} {m}: {given} {taken}");
                        }
                    }
                });
            }
        });
    }
}

/// What a rank computes is worth nothing from some moment on: no call succeeds there, whatever all ranks said of it.
#[test]
fn a_rank_that_gives_up_fails_calls_to_which_all_said_yes() {
    let errors = on_ranks(InMemory::new(3), |world| {
        if world.rank() == 1 {
            // The others have said yes before.
            thread::sleep(Duration::from_millis(100));
            world.give_up("a link is broken", 1);
            assert!(world.is_over());
        }
        let shared = world.share(Parcel::default(), None);
        shared.expect_err("no success").to_string()
    });
    for error in errors {
        assert!(
            error.contains("rank 1") && error.contains("a link is broken"),
            "{error}"
        );
    }
}

/// An error or a panic on any rank ends the step on all with its place, and the next step is right.
#[test]
fn a_failure_on_one_rank_is_one_of_all() {
    let schedule = one_f_one_b(4, 5).unwrap();
    for (stage, trouble) in [
        (0, Trouble::Error),
        (1, Trouble::Panic),
        (3, Trouble::Error),
    ] {
        let place = Place::Action(Action::new(stage, Op::Backward, 2));
        let texts = on_ranks(InMemory::new(2), |world| {
            let plan = Plan::default();
            let mut pipeline = join(schedule.clone(), &plan, &world).unwrap();
            step(&mut pipeline, 0).unwrap();
            plan.set([(place, trouble)]);
            let error = pipeline.step(batch(1, 5, true)).unwrap_err();
            assert_eq!(
                error.place().is_some(),
                world.rank() == stage % 2,
                "{error}"
            );
            plan.set(None);
            step(&mut pipeline, 2).unwrap();
            error.to_string()
        });
        let [own, told] = [stage % 2, 1 - stage % 2].map(|rank| &texts[rank]);
        assert_eq!(*told, format!("rank {} (here): {own}", stage % 2));
        assert!(
            own.contains(&format!("stage {stage}, micro-batch 2")),
            "{own}"
        );
    }
}

/// A rank that fails by itself, between two calls, ends the others.
#[test]
fn a_rank_that_leaves_ends_the_others() {
    let schedule = gpipe(2, 2).unwrap();
    let errors = on_ranks(InMemory::new(2), |world| {
        let mut pipeline = join(schedule.clone(), &Plan::default(), &world).unwrap();
        if world.rank() == 0 {
            world.fail("the disk is full", 1);
            return None;
        }
        let error = pipeline.step(batch(0, 2, true)).unwrap_err();
        assert!(pipeline.step(batch(1, 2, true)).is_err());
        Some(error.to_string())
    });
    assert_eq!(
        errors[1].as_deref(),
        Some("rank 0 (here): the disk is full")
    );
}

/// A rank that misses another one makes other calls than the rest, which miss nobody: they hear why, and do not take its
/// answers for those of their calls.
#[test]
fn a_rank_for_which_the_run_is_over_says_yes_to_no_call() {
    let ends = InMemory::new(3).into_iter();
    let ends: Vec<_> = ends.map(|inner| Faulty::new(inner, None, 0)).collect();
    let deliver = ends[2].deliver.clone();
    let schedule = gpipe(3, 2).unwrap();
    let errors = on_ranks(ends, |world| {
        let mut pipeline = join(schedule.clone(), &Plan::default(), &world).unwrap();
        step(&mut pipeline, 0).unwrap();
        let error = match world.rank() {
            2 => {
                let deliver = deliver.get().expect("a transport that was started");
                deliver(1, Err("silent for 3 s".to_owned()));
                pipeline.any(false).unwrap_err()
            }
            _ => {
                let told = pipeline.gather_across(&Numbers, |_, _| Ok::<_, Failure>(7));
                told.unwrap_err()
            }
        };
        error.to_string()
    });
    let known = "rank 1 (here): silent for 3 s";
    let told = format!("rank 2 (here): {known}");
    assert_eq!(errors, [told.as_str(), &told, known]);
}

/// The first error of a rank in three steps with a fault in a message of rank 0.
fn with_fault(fault: Option<Fault>, message: usize) -> Vec<Option<PipelineError>> {
    let schedule = one_f_one_b(4, 3).unwrap();
    let ends = InMemory::new(2).into_iter().map(|inner| {
        let fault = fault.filter(|_| inner.rank() == 0);
        Faulty::new(inner, fault, message)
    });
    on_ranks(ends.collect(), |world| {
        let mut pipeline = match join(schedule.clone(), &Plan::default(), &world) {
            Ok(pipeline) => pipeline,
            Err(error) => return Some(error),
        };
        // A flow that nothing follows is missed at the deadline.
        let deadline = match fault {
            Some(Fault::Dropped | Fault::Reordered) => Duration::from_millis(300),
            _ => Duration::from_secs(60),
        };
        pipeline.set_deadline(Some(deadline));
        let error = (0..3).find_map(|at| step(&mut pipeline, at).err());
        if let Some(error) = &error {
            world.fail(&error.to_string(), 1);
        }
        error
    })
}

#[test]
fn a_fault_of_any_message_is_noticed() {
    // The first messages of rank 0: an answer to the construction, flows both ways, the end of a step.
    for message in [1, 2, 4, 7, 9] {
        for fault in [
            Fault::Dropped,
            Fault::Doubled,
            Fault::Reordered,
            Fault::Corrupted,
        ] {
            let errors = with_fault(Some(fault), message);
            let named = match fault {
                Fault::Doubled => "came twice",
                Fault::Corrupted => "is damaged",
                Fault::Dropped | Fault::Reordered | Fault::Late => "is missing or out of order",
            };
            let texts: Vec<String> = errors.iter().flatten().map(ToString::to_string).collect();
            assert!(
                texts.len() == 2
                    && texts
                        .iter()
                        .any(|text| text.contains(named) || text.contains("not finished")),
                "{fault:?} {message}: {texts:?}"
            );
        }
        for fault in [None, Some(Fault::Late)] {
            let errors = with_fault(fault, message);
            assert!(errors.iter().all(Option::is_none), "{fault:?}: {errors:?}");
        }
    }
}

/// The last message of a call has no next one that would betray it: the deadline does.
#[test]
fn a_silent_rank_is_named_at_the_deadline() {
    let schedule = gpipe(2, 2).unwrap();
    let errors = on_ranks(InMemory::new(2), |world| {
        let mut pipeline = join(schedule.clone(), &Plan::default(), &world).unwrap();
        pipeline.set_deadline(Some(Duration::from_millis(50)));
        (world.rank() == 1).then(|| pipeline.any(true).unwrap_err().to_string())
    });
    let error = errors[1].as_deref().unwrap_or_default();
    assert!(error.starts_with("rank 0 (here): silent for "), "{error}");
}

/// A message that another one would replace is lost: the run ends on both ranks.
#[test]
fn a_message_that_is_posted_twice_ends_the_run() {
    let (call, place, part) = (Label::OF_NO_CALL, 3, 4);
    let label = Label { call, place, part };
    let errors = on_ranks(InMemory::new(2), |world| {
        if world.rank() == 0 {
            let message = || Parcel {
                head: Vec::new(),
                bodies: vec![vec![1; 10]],
            };
            world.post(1, label, message()).unwrap();
            // One of another label is another one.
            let other = Label { part: 5, ..label };
            world.post(1, other, message()).unwrap();
            world.post(1, label, message()).unwrap();
        }
        // A rank may have answered in the first call before it hears of the message.
        let first = world.share(Parcel::default(), None);
        let second = world.share(Parcel::default(), None);
        first.and(second).expect_err("no success").to_string()
    });
    let named = "second message before the first was taken (no call, place 3, part 4)";
    assert!(
        errors.iter().all(|error| error.contains(named)),
        "{errors:?}"
    );
}

/// The other rank waits for what the failed stage had to give, and the next stage of the failed one's worker for that rank.
#[test]
fn a_stage_that_fails_in_a_visit_leaves_no_later_stage_of_its_worker_waiting() {
    let visited = on_ranks(InMemory::new(2), |world| {
        // Each rank has two stages, which exchange messages with those of the other rank.
        let schedule = interleaved(2, 2, 2).unwrap();
        let mut pipeline = join(schedule, &Plan::default(), &world).unwrap();
        let visited = pipeline.each({
            let world = world.clone();
            move |stage, _| {
                if stage == 0 {
                    return Err("no message".into());
                }
                let (call, place, part) = (world.call(), stage / 2, 0);
                let label = Label { call, place, part };
                let peer = 1 - world.rank();
                world.post(peer, label, Parcel::default())?;
                world.take_posted(peer, label)?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            }
        });
        step(&mut pipeline, 0).expect("a pipeline that stays usable");
        visited.unwrap_err().to_string()
    });
    let error = "stage 0, in a visit: no message";
    assert_eq!(visited, [error.into(), format!("rank 0 (here): {error}")]);
}

/// A message to a rank that does not exist would panic, and one from it never arrives; a rank has none with itself.
#[test]
fn messages_with_ranks_that_do_not_exist_are_refused() {
    let (call, place, part) = (Label::OF_NO_CALL, 0, 0);
    let label = Label { call, place, part };
    on_ranks(InMemory::new(2), |world| {
        let own = world.rank();
        for peer in [own, 2, usize::MAX] {
            let posted = world.post(peer, label, Parcel::default());
            let taken = world.take_posted(peer, label);
            for error in [posted.unwrap_err(), taken.unwrap_err()] {
                assert_eq!(
                    error.to_string(),
                    format!(
                        "rank {own} of 2 has no messages with rank {peer}: name another rank below 2"
                    )
                );
            }
        }
        // The run goes on.
        world.share(Parcel::default(), None).unwrap();
    });
}
