//! Panics in what the executor calls besides the actions: an error with its place, and the next step is right.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpipe_sched::{
    Action, Codec, Empty, Held, Item, LossStage, MicroBatch, Op, Part, Pipeline, PipelineError,
    Place, Reader, Route, Stage, Writer, one_f_one_b,
};

use crate::common::ranks::Numbers;
use crate::common::{Difference, Failure, Plan, batch};
use crate::waits::on_ranks;

/// The call that panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Enter,
    /// The drop of what `enter` returns.
    Leave,
    Held,
    PackFlow,
    UnpackFlow,
}

/// Panics in one call while it is set.
#[derive(Clone)]
struct Planted(Call, Arc<AtomicBool>);

impl Planted {
    fn new(call: Call) -> Self {
        Self(call, Arc::default())
    }

    fn pass(&self, call: Call) {
        assert!(call != self.0 || !self.1.load(Ordering::SeqCst), "planted");
    }
}

struct Entered(Planted);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.pass(Call::Leave);
    }
}

struct Passes(Planted);

impl Stage for Passes {
    type Flow = i64;
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn enter(&self) -> impl Sized + use<> {
        self.0.pass(Call::Enter);
        Entered(self.0.clone())
    }

    fn forward(&mut self, _m: &MicroBatch, x: i64) -> Result<i64, Infallible> {
        Ok(x)
    }

    fn input_grad(&mut self, _m: &MicroBatch, dy: i64) -> Result<Option<i64>, Infallible> {
        Ok(Some(dy))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        Ok(())
    }

    fn held(&mut self) -> Option<Held> {
        self.0.pass(Call::Held);
        None
    }
}

impl Codec<i64> for Planted {
    fn pack(&self, value: i64, out: &mut Writer) -> Result<(), String> {
        Numbers.pack(value, out)
    }

    fn unpack(&self, from: &mut Reader) -> Result<i64, String> {
        Numbers.unpack(from)
    }

    fn pack_flow(&self, value: i64, _route: Route, out: &mut Writer) -> Result<(), String> {
        self.pass(Call::PackFlow);
        self.pack(value, out)
    }

    fn unpack_flow(&self, _route: Route, from: &mut Reader) -> Result<i64, String> {
        self.pass(Call::UnpackFlow);
        self.unpack(from)
    }
}

fn assert_is(error: &PipelineError, place: Place) {
    assert_eq!(error.place(), Some(place), "{error}");
    assert!(error.to_string().ends_with("panicked: planted"), "{error}");
}

#[test]
fn a_panic_beside_an_action_is_one_of_the_action() {
    let first = Place::Action(Action::new(0, Op::Forward, 0));
    let begin = Place::Begin(Part::Stage(0));
    for (call, place) in [
        (Call::Enter, first),
        (Call::Leave, first),
        (Call::Held, begin),
    ] {
        let planted = Planted::new(call);
        let of_stages = planted.clone();
        let mut pipeline = Pipeline::build(
            one_f_one_b(1, 2).unwrap(),
            move |_| Ok::<_, Infallible>(Passes(of_stages.clone())),
            || Ok::<_, Failure>(Difference::new(Plan::default())),
        )
        .unwrap();
        planted.1.store(true, Ordering::SeqCst);
        assert_is(&pipeline.step(batch(0, 2, true)).unwrap_err(), place);
        planted.1.store(false, Ordering::SeqCst);
        pipeline
            .step(batch(1, 2, true))
            .expect("a worker that lives");
    }
}

/// What cannot be packed fails an action; what cannot be read ends the run, as a damaged message does.
#[test]
fn a_panic_of_a_codec_is_an_error_on_all_ranks() {
    for call in [Call::PackFlow, Call::UnpackFlow] {
        on_ranks(2, move |world| {
            // The first flow passes from rank 0 to rank 1.
            let fails = world.rank() == usize::from(call == Call::UnpackFlow);
            let planted = Planted::new(call);
            let of_stages = planted.clone();
            let mut pipeline = Pipeline::join(
                one_f_one_b(2, 3).unwrap(),
                &world,
                1,
                vec![0, 1],
                Arc::new(planted.clone()),
                move |_| Ok::<_, Infallible>(Passes(of_stages.clone())),
                || Ok::<_, Failure>(Difference::new(Plan::default())),
            )
            .unwrap();
            pipeline.set_deadline(Some(Duration::from_secs(20)));
            planted.1.store(fails, Ordering::SeqCst);
            let error = pipeline.step(batch(0, 3, true)).unwrap_err();
            planted.1.store(false, Ordering::SeqCst);
            let next = pipeline.step(batch(1, 3, true));
            match call {
                Call::PackFlow => {
                    if fails {
                        assert_is(&error, Place::Action(Action::new(0, Op::Forward, 0)));
                    }
                    next.expect("workers that live");
                }
                _ => assert!(next.is_err()),
            }
            assert!(error.to_string().ends_with("panicked: planted"), "{error}");
        });
    }
}

/// An error that cannot be shown.
#[derive(Debug)]
struct Unshown;

impl From<Unshown> for Box<dyn std::error::Error + Send + Sync> {
    fn from(_: Unshown) -> Self {
        panic!("planted")
    }
}

#[test]
fn a_panic_while_an_error_is_converted_is_one_of_its_place() {
    let mut pipeline = Empty::pipeline(one_f_one_b(3, 2).unwrap()).unwrap();
    let visited = pipeline.each(|stage, _| match stage {
        1 => Err(Unshown),
        _ => Ok(()),
    });
    assert_is(&visited.unwrap_err(), Place::Visit(Part::Stage(1)));
    pipeline
        .step(Empty::batch(2, 0))
        .expect("workers that live");
}

/// Its destructor panics, once.
struct Spoiled(Arc<AtomicBool>);

impl Drop for Spoiled {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "dropped");
    }
}

#[test]
fn a_panic_of_what_a_visit_captured_leaves_the_workers() {
    let mut pipeline = Empty::pipeline(one_f_one_b(3, 2).unwrap()).unwrap();
    let captured = Spoiled(Arc::new(AtomicBool::new(true)));
    let visited = pipeline.each(move |_, _| {
        let _ = &captured;
        Ok::<_, Infallible>(())
    });
    let error = visited.unwrap_err();
    assert_eq!(error.to_string(), "stage 0, in a visit: panicked: dropped");
    pipeline
        .step(Empty::batch(2, 0))
        .expect("workers that live");
}

/// Fails in the second micro-batch of step 0, on either stage.
struct Stops(usize, usize);

impl Stage for Stops {
    type Flow = ();
    type Error = fmt::Error;

    fn begin(&mut self, _step: u64) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn forward(&mut self, m: &MicroBatch, _x: ()) -> Result<(), fmt::Error> {
        match (self.0 == self.1, m.step, m.index) {
            (true, 0, 1) => Err(fmt::Error),
            _ => Ok(()),
        }
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, fmt::Error> {
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), fmt::Error> {
        Ok(())
    }
}

/// Takes targets, and drops them.
struct Takes;

impl LossStage<()> for Takes {
    type Target = Spoiled;
    type Error = fmt::Error;

    fn begin(&mut self, _step: u64) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn loss(
        &mut self,
        _m: &MicroBatch,
        _y: (),
        _target: Spoiled,
    ) -> Result<Option<()>, fmt::Error> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> Result<Vec<f64>, fmt::Error> {
        Ok(Vec::new())
    }
}

#[test]
fn a_panic_of_a_target_that_is_dropped_leaves_the_workers_and_the_first_error() {
    for fails in [0, 1] {
        let make_stage = move |stage| Ok::<_, Infallible>(Stops(stage, fails));
        let make_loss_stage = || Ok::<_, Infallible>(Takes);
        let schedule = one_f_one_b(2, 3).unwrap();
        let mut pipeline = Pipeline::build(schedule, make_stage, make_loss_stage).unwrap();
        let items = |step, panics: bool| {
            let item = move |m| Item {
                micro_batch: MicroBatch::new(m, 0..1, step, true),
                input: (),
                // The last one is left, wherever a stage fails.
                target: Spoiled(Arc::new(AtomicBool::new(panics && m == 2))),
            };
            (0..3).map(item).collect()
        };
        let error = pipeline.step(items(0, true)).unwrap_err();
        let place = Place::Action(Action::new(fails, Op::Forward, 1));
        assert_eq!(error.place(), Some(place), "{error}");
        pipeline.step(items(1, false)).expect("workers that live");
    }
}
