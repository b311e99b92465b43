//! What a stage shares with others is held for its whole action and no longer, however that ends.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use gpipe_sched::{Item, LossStage, MicroBatch, Pipeline, Stage, gpipe};

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, event: &'static str) {
    log.lock().expect("no panic while it is held").push(event);
}

struct Entered(Log);

impl Drop for Entered {
    fn drop(&mut self) {
        note(&self.0, "leave");
    }
}

/// A stage that writes down what happens to it, and panics on the flow 13.
struct Diary(Log);

impl Stage for Diary {
    type Flow = u32;
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn enter(&self) -> impl Sized + use<> {
        note(&self.0, "enter");
        Entered(self.0.clone())
    }

    fn forward(&mut self, _m: &MicroBatch, x: u32) -> Result<u32, Infallible> {
        note(&self.0, "forward");
        assert_ne!(x, 13, "planted");
        Ok(x)
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: u32) -> Result<Option<u32>, Infallible> {
        note(&self.0, "input gradient");
        Ok(None)
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        note(&self.0, "weight gradient");
        Ok(())
    }
}

struct Echo(Log);

impl LossStage<u32> for Echo {
    type Target = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn loss(&mut self, _m: &MicroBatch, y: u32, _target: ()) -> Result<Option<u32>, Infallible> {
        note(&self.0, "turn");
        Ok(Some(y))
    }

    fn losses(&mut self) -> Result<Vec<f64>, Self::Error> {
        Ok(Vec::new())
    }
}

fn events(input: u32) -> Vec<&'static str> {
    let log = Log::default();
    let (stages, turn) = (log.clone(), log.clone());
    let mut pipeline = Pipeline::build(
        gpipe(1, 1).expect("a valid size"),
        move |_| Ok::<_, Infallible>(Diary(stages.clone())),
        move || Ok::<_, Infallible>(Echo(turn)),
    )
    .expect("a pipeline");
    let micro_batch = MicroBatch::new(0, 0..1, 0, true);
    let item = Item {
        micro_batch,
        input,
        target: (),
    };
    let outcome = pipeline.step(vec![item]);
    assert_eq!(outcome.is_err(), input == 13);
    log.lock().expect("no panic while it is held").clone()
}

#[test]
fn an_action_and_its_turn_lie_between_entering_and_leaving() {
    let forward = ["enter", "forward", "turn", "leave"];
    let backward = ["enter", "input gradient", "weight gradient", "leave"];
    assert_eq!(events(1), [forward, backward].concat());
}

#[test]
fn a_panic_leaves_too() {
    assert_eq!(events(13), ["enter", "forward", "leave"]);
}
