//! What a stage shares with others is held for its whole action and no longer, however that ends.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gpipe_sched::{Item, LossStage, MicroBatch, Pipeline, Reserve, Stage, gpipe};

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, event: &'static str) {
    log.lock().expect("no panic while it is held").push(event);
}

/// Writes down its end.
struct Ends(Log, &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        note(&self.0, self.1);
    }
}

/// A stage that writes down what happens to it, and panics on the flow 13.
struct Diary {
    log: Log,
    /// Its forward pass ends some time after the first event here.
    awaits: Option<Log>,
}

impl Stage for Diary {
    type Flow = u32;
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn enter(&self) -> impl Sized + use<> {
        note(&self.log, "enter");
        Ends(self.log.clone(), "leave")
    }

    fn reserve(&self) -> Option<Reserve> {
        note(&self.log, "sleep");
        let log = self.log.clone();
        Some(Box::new(move || {
            note(&log, "reserve");
            Box::new(Ends(log, "release"))
        }))
    }

    fn forward(&mut self, _m: &MicroBatch, x: u32) -> Result<u32, Infallible> {
        note(&self.log, "forward");
        assert_ne!(x, 13, "planted");
        if let Some(other) = &self.awaits {
            while other.lock().expect("no panic while it is held").is_empty() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(x)
    }

    fn input_grad(&mut self, _m: &MicroBatch, dy: u32) -> Result<Option<u32>, Infallible> {
        note(&self.log, "input gradient");
        Ok(Some(dy))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        note(&self.log, "weight gradient");
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

fn item(input: u32) -> Item<u32, ()> {
    Item {
        micro_batch: MicroBatch::new(0, 0..1, 0, true),
        input,
        target: (),
    }
}

fn events(input: u32) -> Vec<&'static str> {
    let log = Log::default();
    let (stages, turn) = (log.clone(), log.clone());
    let mut pipeline = Pipeline::build(
        gpipe(1, 1).expect("a valid size"),
        move |_| {
            Ok::<_, Infallible>(Diary {
                log: stages.clone(),
                awaits: None,
            })
        },
        move || Ok::<_, Infallible>(Echo(turn)),
    )
    .expect("a pipeline");
    let outcome = pipeline.step(vec![item(input)]);
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
fn a_worker_that_sleeps_is_woken_with_a_reservation_for_its_next_action() {
    let [first, second] = [Log::default(), Log::default()];
    let (logs, turn) = ([first, second.clone()], second.clone());
    let stage = move |stage: usize| {
        Ok::<_, Infallible>(Diary {
            log: logs[stage].clone(),
            awaits: (stage == 0).then(|| logs[1].clone()),
        })
    };
    let mut pipeline = Pipeline::build(gpipe(2, 1).expect("a valid size"), stage, move || {
        Ok::<_, Infallible>(Echo(turn))
    })
    .expect("a pipeline");
    // On a busy machine, the second worker may not be asleep yet when its flow arrives.
    let mut rounds = (0..100).map(|_| {
        second.lock().expect("no panic while it is held").clear();
        pipeline.step(vec![item(1)]).expect("a step");
        second.lock().expect("no panic while it is held").clone()
    });
    let backward = ["enter", "input gradient", "weight gradient", "leave"];
    let slept = [
        &[
            "sleep", "reserve", "enter", "release", "forward", "turn", "leave",
        ],
        &backward[..],
    ]
    .concat();
    assert!(rounds.any(|events| events == slept));
}

#[test]
fn a_panic_leaves_too() {
    assert_eq!(events(13), ["enter", "forward", "leave"]);
}
