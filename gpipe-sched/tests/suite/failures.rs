//! Something goes wrong at every place where something can: the caller hears of it, nobody is left
//! waiting, and the next step is right.

mod teeth;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gpipe_sched::{
    Action, Fault, Item, LossStage, MicroBatch, Op, Part, Pipeline, PipelineError, Place, Schedule,
    ScheduleError, Stage, dualpipe_v, gpipe, interleaved, looped_bfs, one_f_one_b, v_half, v_min,
    zb_h1, zb_h2, zb_v,
};

use crate::common::{Failure, Plan, Trouble, assert_transparent, batch, build, places};
use crate::orders::{any_order, lanes};

fn assert_is(error: &PipelineError, place: Place, trouble: Trouble) {
    assert_eq!(error.place(), Some(place));
    match (error, trouble) {
        (PipelineError::Failed { source, .. }, Trouble::Error) => {
            assert_eq!(source.downcast_ref::<Failure>(), Some(&Failure(place)));
        }
        (PipelineError::Panicked { message, .. }, Trouble::Panic) => {
            assert_eq!(*message, format!("panic at {place}"));
        }
        _ => panic!("{trouble:?} at {place} came back as {error:?}"),
    }
}

/// An error and a panic at every place of a step, counted as they are survived.
fn fails_everywhere(schedule: &Schedule, plan: &Plan, survived: &AtomicUsize) {
    let micro_batches = schedule.micro_batches();
    let places = places(schedule);
    let mut pipeline = build(schedule.clone(), plan).unwrap();
    for (step, &place) in places.iter().enumerate() {
        for trouble in [Trouble::Error, Trouble::Panic] {
            plan.set(Some((place, trouble)));
            let error = pipeline
                .step(batch(step as u64, micro_batches, true))
                .unwrap_err();
            assert_is(&error, place, trouble);
            plan.set(None);
            pipeline
                .each(|_, _| Ok::<_, Failure>(()))
                .expect("every thread is alive");
            assert_transparent(&mut pipeline, step as u64);
            survived.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Schedules of four devices, and one with every kind of action; in the exam, every builder's.
fn schedules() -> Vec<Schedule> {
    let split = {
        let device_of = vec![0, 1, 1, 0];
        let order = any_order(4, 3, |_, _| true, |_, _| true, &mut |_| 0);
        Schedule::new(device_of.clone(), 3, lanes(&device_of, &order)).unwrap()
    };
    let few = vec![gpipe(4, 4).unwrap(), one_f_one_b(4, 4).unwrap(), split];
    if std::env::var_os("GPIPE_EXAM").is_none() {
        return few;
    }
    let more = [
        interleaved(4, 4, 2).unwrap(),
        looped_bfs(4, 4, 2).unwrap(),
        zb_h1(4, 4).unwrap(),
        zb_h2(4, 4).unwrap(),
        zb_v(4, 4).unwrap(),
    ];
    few.into_iter().chain(more).collect()
}

/// What `check` has counted; `None` if it fails, or counts nothing more for so long: a hang. How long
/// the whole takes depends on who else is at work.
fn ends(silence: Duration, check: impl FnOnce(&AtomicUsize) + Send + 'static) -> Option<usize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| check(&counter)));
        let _ = done.send(outcome.is_ok());
    });
    let mut before = 0;
    loop {
        let outcome = ended.recv_timeout(silence);
        let now = count.load(Ordering::Relaxed);
        match outcome {
            Ok(well) => return well.then_some(now),
            Err(_) if now == before => return None,
            Err(_) => before = now,
        }
    }
}

#[test]
fn an_error_or_panic_at_every_action_comes_back_with_its_place() {
    let mut tried = 0;
    // A step after a failure is compared with ascending order.
    for schedule in schedules().into_iter().filter(Schedule::is_ascending) {
        let survived = ends(Duration::from_secs(60), move |survived| {
            fails_everywhere(&schedule, &Plan::default(), survived);
        });
        tried += survived.expect("no failure, see above, and no hang");
    }
    println!("exam F1 {tried}/{tried}");
    let of_two = 2 * 2 * (2 * 4 * 4 + 4 + 2 * 4 + 1);
    assert!(tried > of_two, "{tried}");
}

#[test]
fn the_place_reads_well() {
    let plan = Plan::default();
    let mut pipeline = build(gpipe(3, 4).unwrap(), &plan).unwrap();
    plan.set(Some((
        Place::Action(Action::new(2, Op::Backward, 3)),
        Trouble::Error,
    )));
    let error = pipeline.step(batch(0, 4, true)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage 2, micro-batch 3, backward (2B3): error at stage 2, micro-batch 3, backward (2B3)"
    );
}

#[test]
fn evaluation_fails_like_a_step() {
    let plan = Plan::default();
    let mut pipeline = build(gpipe(3, 2).unwrap(), &plan).unwrap();
    for m in 0..6 {
        let place = Place::Action(Action::new(1, Op::Forward, m));
        plan.set(Some((place, Trouble::Panic)));
        let error = pipeline.forward(batch(0, 6, false)).unwrap_err();
        assert_is(&error, place, Trouble::Panic);
        plan.set(None);
        assert_transparent(&mut pipeline, 1);
    }
}

#[test]
fn a_stage_that_cannot_be_made_ends_the_build() {
    for part in [
        Part::Stage(0),
        Part::Stage(1),
        Part::Stage(2),
        Part::LossStage,
    ] {
        for trouble in [Trouble::Error, Trouble::Panic] {
            let plan = Plan::default();
            plan.set(Some((Place::Build(part), trouble)));
            let Err(error) = build(gpipe(3, 2).unwrap(), &plan) else {
                panic!("{part} was made")
            };
            assert_is(&error, Place::Build(part), trouble);
        }
    }
}

#[test]
fn visits_fail_one_by_one() {
    let mut pipeline = build(gpipe(4, 2).unwrap(), &Plan::default()).unwrap();
    let visited = Arc::new(AtomicUsize::new(0));
    let counter = visited.clone();
    let error = pipeline.each(move |stage, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        match stage {
            1 => panic!("at one"),
            2 => Err(std::io::Error::other("at two")),
            _ => Ok(()),
        }
    });
    // Both failed; the caller hears of the first in model order.
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "stage 1, in a visit: panicked: at one");
    assert_eq!(visited.load(Ordering::Relaxed), 4);
    let error = pipeline
        .with_loss_stage(|_| Err::<(), _>("no such thing"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the loss stage, in a visit: no such thing"
    );
    assert_transparent(&mut pipeline, 0);
}

#[test]
fn items_that_do_not_fit_are_refused_before_anything_runs() {
    let mut pipeline = build(gpipe(2, 3).unwrap(), &Plan::default()).unwrap();
    let mut crossed = batch(0, 3, true);
    crossed.swap(0, 1);
    let mut mixed = batch(0, 3, true);
    mixed[2].micro_batch.step = 7;
    for (items, message) in [
        (
            batch(0, 2, true),
            "2 items for a schedule of 3 micro-batches: give one for each",
        ),
        (
            crossed,
            "item 0 is micro-batch 1: give them in order from 0",
        ),
        (mixed, "item 2 is of step 7, not 0"),
        (
            batch(0, 3, false),
            "micro-batch 0 has train = false: it must be true in a step",
        ),
    ] {
        assert_eq!(pipeline.step(items).unwrap_err().to_string(), message);
    }
    let error = pipeline.forward(batch(0, 1, true)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "micro-batch 0 has train = true: it must be false in a forward pass"
    );
    let error = pipeline.forward(Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "no items: give at least one micro-batch");
    assert_transparent(&mut pipeline, 1);
}

/// A stage that misbehaves in ways that `Toy` does not.
struct Rude {
    index: usize,
    how: Rudeness,
    dropped: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Rudeness {
    /// Gives no gradient to the stage before.
    Silent,
    /// Panics at the beginning with something that panics when it is dropped, which takes the thread along.
    Deadly,
}

struct Evil;

impl Drop for Evil {
    fn drop(&mut self) {
        panic!("and again");
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Stage for Rude {
    type Flow = ();
    type Error = Failure;

    fn begin(&mut self, _step: u64) -> Result<(), Failure> {
        if self.how == Rudeness::Deadly && self.index == 1 {
            std::panic::panic_any(Evil);
        }
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, _x: ()) -> Result<(), Failure> {
        Ok(())
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, Failure> {
        Ok((self.how == Rudeness::Deadly || self.index != 1).then_some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Failure> {
        Ok(())
    }
}

struct Nothing;

impl LossStage<()> for Nothing {
    type Target = ();
    type Error = Failure;

    fn begin(&mut self, _step: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn loss(&mut self, _m: &MicroBatch, _y: (), _target: ()) -> Result<Option<()>, Failure> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> Result<Vec<f64>, Self::Error> {
        Ok(Vec::new())
    }
}

fn rude(how: Rudeness, dropped: &Arc<AtomicUsize>) -> Pipeline<Rude, Nothing> {
    let dropped = dropped.clone();
    let make = move |index| {
        Ok::<_, Failure>(Rude {
            index,
            how,
            dropped: dropped.clone(),
        })
    };
    Pipeline::build(one_f_one_b(3, 4).unwrap(), make, || {
        Ok::<_, Failure>(Nothing)
    })
    .unwrap()
}

fn units() -> Vec<Item<(), ()>> {
    let micro_batch = |index| MicroBatch::new(index, 0..0, 0, true);
    (0..4)
        .map(|m| Item {
            micro_batch: micro_batch(m),
            input: (),
            target: (),
        })
        .collect()
}

#[test]
fn a_gradient_that_someone_waits_for_must_come() {
    let mut pipeline = rude(Rudeness::Silent, &Arc::default());
    let error = pipeline.step(units()).unwrap_err();
    let place = Place::Action(Action::new(1, Op::Backward, 0));
    assert!(matches!(error, PipelineError::NoGradient { .. }), "{error}");
    assert_eq!(error.place(), Some(place));
}

#[test]
fn a_worker_that_dies_is_named_and_nobody_waits_for_it() {
    let dropped = Arc::default();
    let mut pipeline = rude(Rudeness::Deadly, &dropped);
    for _ in 0..2 {
        let error = pipeline.step(units()).unwrap_err();
        assert!(
            matches!(error, PipelineError::Gone { device: 1 }),
            "{error}"
        );
        let error = pipeline.each(|_, _| Ok::<_, Failure>(())).unwrap_err();
        assert!(
            matches!(error, PipelineError::Gone { device: 1 }),
            "{error}"
        );
    }
    drop(pipeline);
    assert_eq!(
        dropped.load(Ordering::Relaxed),
        3,
        "dropping a pipeline joins its threads"
    );
}

type Build = fn(usize, usize) -> Result<Schedule, ScheduleError>;

#[test]
fn sizes_without_meaning_are_refused() {
    // Each with the stages of a device.
    let builders: [(Build, usize); 9] = [
        (gpipe, 1),
        (one_f_one_b, 1),
        (gpipe_sched::forward_only, 1),
        (zb_h1, 1),
        (zb_h2, 1),
        (zb_v, 2),
        (v_half, 2),
        (v_min, 2),
        (dualpipe_v, 2),
    ];
    for (make, chunks) in builders {
        for (devices, micro_batches) in [(0, 4), (4, 0), (0, 0)] {
            let error = make(devices, micro_batches).unwrap_err();
            let stages = devices * chunks;
            assert_eq!(
                *error.fault(),
                Fault::Empty {
                    stages,
                    micro_batches
                }
            );
        }
        for (devices, micro_batches) in [
            (usize::MAX, 2),
            (usize::MAX, usize::MAX),
            (1 << 20, 1 << 20),
        ] {
            let error = make(devices, micro_batches).unwrap_err();
            let stages = devices.saturating_mul(chunks);
            assert_eq!(
                *error.fault(),
                Fault::TooLarge {
                    stages,
                    micro_batches
                }
            );
            assert_eq!(error.cell(), None);
        }
    }
}
