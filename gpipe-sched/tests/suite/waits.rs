//! Sequences of calls over ranks in which one could wait for another without end.

use std::error::Error;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use gpipe_sched::{
    InMemory, Label, MicroBatch, Parcel, Part, Pipeline, PipelineError, Place, Schedule, Stage,
    World, gpipe, one_f_one_b,
};

use crate::common::faulty::{Fault, Faulty};
use crate::common::ranks::{Numbers, join, step};
use crate::common::{Difference, Failure, Plan, Toy, Trouble, batch};

/// A rank that has no result after this time hangs.
const HANG: Duration = Duration::from_secs(60);

/// Runs the same on every rank, a thread each; the results in the order of the ranks, or a panic where one hangs.
pub fn on_ranks<R: Send + 'static>(
    ranks: usize,
    run: impl Fn(Arc<World>) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let run = Arc::new(run);
    let threads = InMemory::new(ranks).into_iter().map(|end| {
        let (run, (done, result)) = (run.clone(), mpsc::channel());
        thread::spawn(move || done.send(run(World::new(end))));
        result
    });
    let results = threads.collect::<Vec<_>>().into_iter();
    let results = results.map(|result| result.recv_timeout(HANG).expect("neither panic nor hang"));
    results.collect()
}

fn schedule() -> Schedule {
    one_f_one_b(4, 5).expect("a valid size")
}

/// The new pipeline is built before the old one is dropped, and one that cannot be built leaves the old one as it was.
#[test]
fn a_pipeline_is_replaced_over_its_world() {
    on_ranks(2, |world| {
        let plan = Plan::default();
        let mut pipeline = join(schedule(), &plan, &world).unwrap();
        step(&mut pipeline, 0).unwrap();
        pipeline = join(schedule(), &plan, &world).unwrap();
        step(&mut pipeline, 1).unwrap();
        drop(join(schedule(), &plan, &world).unwrap());
        step(&mut pipeline, 2).unwrap();
    });
}

/// A rank that is ahead begins a step, which the other's pipeline gets once the newer one is dropped there; a step that fails
/// on the first rank ends on both.
#[test]
fn a_step_that_begins_before_a_newer_pipeline_is_dropped_elsewhere_is_not_lost() {
    for trouble in [None, Some(Trouble::Error)] {
        let place = Place::Begin(Part::Stage(0));
        let ended = on_ranks(2, move |world| {
            let plan = Plan::default();
            let mut pipeline = join(schedule(), &plan, &world).unwrap();
            let newer = join(schedule(), &plan, &world).unwrap();
            plan.set(trouble.map(|trouble| (place, trouble)));
            if world.rank() == 1 {
                // Nothing says when the first rank's messages are here.
                thread::sleep(Duration::from_millis(100));
            }
            drop(newer);
            step(&mut pipeline, 0).map_err(|error| error.to_string())
        });
        for ended in ended {
            match trouble {
                None => ended.unwrap(),
                Some(_) => {
                    let error = ended.unwrap_err();
                    assert!(error.contains(&Failure(place).to_string()), "{error}");
                }
            }
        }
    }
}

/// A stage whose forward passes of stage 0 wait for what nobody posts.
struct Waiter {
    stage: usize,
    world: Arc<World>,
}

impl Stage for Waiter {
    type Flow = i64;
    type Error = PipelineError;

    fn begin(&mut self, _step: u64) -> Result<(), PipelineError> {
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, x: i64) -> Result<i64, PipelineError> {
        if self.stage == 0 {
            let (call, place, part) = (self.world.call(), 0, 0);
            self.world.take_posted(1, Label { call, place, part })?;
        }
        Ok(x)
    }

    fn input_grad(&mut self, _m: &MicroBatch, dy: i64) -> Result<Option<i64>, PipelineError> {
        Ok(Some(dy))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), PipelineError> {
        Ok(())
    }
}

/// The loss stage fails, on the rank of the worker that waits or on the one that would post.
#[test]
fn a_failed_step_ends_the_waits_for_what_is_posted() {
    for failing in [0, 1] {
        let place = Place::Begin(Part::LossStage);
        let errors = on_ranks(2, move |world| {
            let (plan, of_stages) = (Plan::default(), world.clone());
            plan.set([(place, Trouble::Error)]);
            let mut pipeline = Pipeline::join(
                one_f_one_b(3, 3).unwrap(),
                &world,
                1,
                vec![0, 1, failing],
                Arc::new(Numbers),
                move |stage| {
                    let world = of_stages.clone();
                    Ok::<_, Failure>(Waiter { stage, world })
                },
                move || Ok::<_, Failure>(Difference::new(plan)),
            )
            .unwrap();
            pipeline.step(batch(0, 3, true)).unwrap_err().to_string()
        });
        for error in errors {
            assert!(error.contains(&Failure(place).to_string()), "{error}");
        }
    }
}

/// A stage that cannot be built gives nothing that other stages wait for: neither the next worker of its rank, which waits for
/// the other rank, nor that rank.
#[test]
fn a_stage_that_cannot_be_built_ends_the_waits_of_the_construction() {
    let errors = on_ranks(2, |world| {
        let of_stages = world.clone();
        let made = Pipeline::join(
            one_f_one_b(3, 3).unwrap(),
            &world,
            1,
            vec![0, 0, 1],
            Arc::new(Numbers),
            move |stage| {
                let call = of_stages.call();
                let [from_first, from_last] = [0, 1].map(|part| {
                    let place = 0;
                    Label { call, place, part }
                });
                match stage {
                    0 => return Err("no memory".into()),
                    1 => drop(of_stages.take_posted(1, from_last)?),
                    _ => {
                        of_stages.take_posted(0, from_first)?;
                        of_stages.post(0, from_last, Parcel::default())?;
                    }
                }
                let world = of_stages.clone();
                Ok::<_, Box<dyn Error + Send + Sync>>(Waiter { stage, world })
            },
            || Ok::<_, Failure>(Difference::new(Plan::default())),
        );
        let error = made.map(drop).unwrap_err().to_string();
        // The world stays usable.
        drop(join(schedule(), &Plan::default(), &world).unwrap());
        error
    });
    let error = "building stage 0: no memory";
    assert_eq!(errors, [error.into(), format!("rank 0 (here): {error}")]);
}

/// A launcher ends all ranks with the first one that fails, in the middle of what they write.
#[test]
fn a_rank_that_fails_waits_for_those_that_are_busy() {
    let is_written = Arc::new(AtomicBool::new(false));
    let written = is_written.clone();
    on_ranks(2, move |world| {
        if world.rank() == 0 {
            // The next checkpoint is begun before the last one is let go.
            let first = world.busy();
            let second = world.busy();
            drop(first);
            world.share(Parcel::default(), None).unwrap();
            thread::sleep(Duration::from_millis(100));
            written.store(true, Ordering::SeqCst);
            drop(second);
        } else {
            world.share(Parcel::default(), None).unwrap();
            world.give_up("no power", 1);
            world.close().unwrap();
            assert!(written.load(Ordering::SeqCst));
        }
    });
    assert!(is_written.load(Ordering::SeqCst));
}

/// Nobody hears when it is done.
#[test]
fn a_busy_rank_that_is_not_heard_any_more_is_not_waited_for() {
    // A rank is lost, the transport fails here, or what the rank says last is damaged.
    for lost in [Some(0), Some(1), None] {
        let fault = lost.is_none().then_some(Fault::Corrupted);
        let mut ends = InMemory::new(2).into_iter();
        let end = Faulty::new(ends.next().unwrap(), fault, 1);
        let writer = World::new(end);
        let end = Faulty::new(ends.next().unwrap(), None, 0);
        let deliver = end.deliver.clone();
        let other = World::new(end);
        let busy = writer.busy();
        let (done, result) = mpsc::channel();
        thread::spawn(move || done.send(other.close()));
        match lost {
            Some(from) => deliver.get().unwrap()(from, Err("silent for 5 s".to_owned())),
            None => drop(busy),
        }
        result.recv_timeout(HANG).expect("no hang").unwrap();
    }
}

/// Messages of a step and of a visit after it have different labels.
#[test]
fn a_visit_has_a_number_of_its_own() {
    on_ranks(2, |world| {
        let mut pipeline = join(schedule(), &Plan::default(), &world).unwrap();
        pipeline.step(batch(0, 5, true)).unwrap();
        let (of_step, in_visit) = (world.call(), world.clone());
        let calls = pipeline.gather(move |_, _| Ok::<_, Failure>(in_visit.call()));
        assert_eq!(calls.unwrap(), vec![of_step + 1; 2]);
        assert_eq!(world.call(), of_step + 1);
    });
}

/// The name of a visit to the loss stage of another rank is not that of the next visit.
#[test]
fn the_name_of_a_visit_is_of_one_visit_on_every_rank() {
    let errors = on_ranks(2, |world| {
        let mut pipeline = join(gpipe(2, 1).unwrap(), &Plan::default(), &world).unwrap();
        let named = pipeline.during("reading the accuracy");
        let read = named.with_loss_stage_across(&Numbers, |_| Ok::<_, Failure>(7));
        assert_eq!(read.unwrap(), 7);
        pipeline.set_deadline(Some(Duration::from_millis(300)));
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let late = pipeline.each(move |stage, _| {
            if stage == 0 {
                let _ = released.lock().unwrap().recv();
            }
            Ok::<_, Failure>(())
        });
        drop(release);
        late.unwrap_err().to_string()
    });
    let named = "device 0 runs a visit of stage 0";
    assert!(
        errors.iter().all(|error| error.contains(named)),
        "{errors:?}"
    );
}

/// Items that one rank refuses end the call of all, and the next call works.
#[test]
fn a_batch_that_one_rank_refuses_ends_the_call_of_all() {
    on_ranks(2, |world| {
        let mut pipeline = join(schedule(), &Plan::default(), &world).unwrap();
        let first = world.rank() == 0;
        let faults = [
            pipeline
                .step(batch(0, if first { 4 } else { 5 }, true))
                .map(drop),
            pipeline.step(batch(0, 5, first)).map(drop),
            pipeline
                .forward(batch(0, if first { 0 } else { 5 }, false))
                .map(drop),
            pipeline.forward(batch(0, 5, first)).map(drop),
        ];
        let wrong = ["4 items", "train = false", "no items", "train = true"];
        for (fault, wrong) in faults.into_iter().zip(wrong) {
            let error = fault.unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        step(&mut pipeline, 1).unwrap();
    });
}

/// Set for a process in which every thread that asks for no size of its stack asks for more than there is.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "1152921504606846976");

/// The rank that cannot start its threads tells the other one, which needs none.
#[test]
fn a_rank_without_threads_ends_the_construction_of_all() {
    let name = "waits::a_rank_without_threads_ends_the_construction_of_all";
    if std::env::var(NO_THREADS.0).is_ok_and(|size| size == NO_THREADS.1) {
        let (done, results) = mpsc::channel();
        for end in InMemory::new(2) {
            let done = done.clone();
            let rank = move || {
                let world = World::new(end);
                let (of_stages, of_loss) = (Plan::default(), Plan::default());
                let made = Pipeline::join(
                    gpipe(2, 1).unwrap(),
                    &world,
                    1,
                    vec![0, 0],
                    Arc::new(Numbers),
                    move |stage| Ok::<_, Failure>(Toy::new(stage, of_stages.clone())),
                    move || Ok::<_, Failure>(Difference::new(of_loss)),
                );
                let _ = done.send(made.map(drop).unwrap_err().to_string());
            };
            let thread = thread::Builder::new().stack_size(1 << 20);
            thread.spawn(rank).expect("a thread of a usual size");
        }
        for _ in 0..2 {
            let error = results.recv_timeout(HANG).expect("no hang");
            assert!(error.contains("cannot start a thread"), "{error}");
        }
        return;
    }
    let test = std::env::current_exe().unwrap();
    let status = Command::new(test)
        .args(["--exact", name, "--test-threads", "1"])
        .env(NO_THREADS.0, NO_THREADS.1)
        .status();
    assert!(status.unwrap().success());
}
