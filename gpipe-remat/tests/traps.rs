//! A layer that fails, panics or runs out of memory in the middle of any action of any stage and
//! micro-batch: the caller hears of it with its place, and the next step gives the right bits.

mod common;

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{Model, Run};
use gpipe_layers::{Cost, Error, Flow, Layer, Loss, Param, PassContext, Pending, Result, Saved};
use gpipe_remat::{Assembled, Assembly, Policy, gradient_norm, merge_ties};
use gpipe_sched::{Action, Op, PipelineError, Place, Schedule, gpipe, one_f_one_b, zb_h1};
use gpipe_tensor::{DeviceId, Host, Tensors};

const STAGES: usize = 4;
const MICRO_BATCHES: usize = 4;

/// In which call of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Forward,
    /// The second forward pass of a micro-batch.
    Again,
    InputGrad,
    WeightGrad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Error,
    Panic,
    OutOfMemory,
}

#[derive(Clone, Copy, Debug)]
struct Trap {
    stage: usize,
    micro_batch: usize,
    call: Call,
    kind: Kind,
}

/// The trap that is set, and how often each call came since.
#[derive(Default)]
struct Board {
    trap: Option<Trap>,
    calls: HashMap<(usize, Call, u64), usize>,
    sprung: bool,
}

/// A layer, and what may happen in its place.
struct Trapped {
    layer: Box<dyn Layer>,
    stage: usize,
    board: Arc<Mutex<Board>>,
}

impl Trapped {
    /// `key` tells calls apart that are counted by themselves: samples for a forward pass.
    fn pass(&self, call: Call, key: u64) -> Result<()> {
        let mut board = self.board.lock().expect("no panic holds it");
        let before = board.calls.entry((self.stage, call, key)).or_default();
        *before += 1;
        let (micro_batch, call) = match call {
            // Two samples a micro-batch.
            Call::Forward => (
                key as usize / 2,
                if *before == 1 { call } else { Call::Again },
            ),
            // Gradients come in ascending order.
            _ => (*before - 1, call),
        };
        let sprung = board.trap.filter(|trap| {
            (trap.stage, trap.micro_batch, trap.call) == (self.stage, micro_batch, call)
        });
        let Some(trap) = sprung else { return Ok(()) };
        board.sprung = true;
        drop(board);
        match trap.kind {
            Kind::Error => Err(Error::Config("a trap".into())),
            Kind::OutOfMemory => {
                let full = gpipe_tensor::Error::OutOfMemory { bytes: 7 };
                Err(Error::within(self.layer.name())(full))
            }
            Kind::Panic => panic!("a trap"),
        }
    }
}

impl Layer for Trapped {
    fn name(&self) -> &str {
        self.layer.name()
    }

    fn arity(&self) -> usize {
        self.layer.arity()
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        self.layer.cost(inputs)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.pass(Call::Forward, cx.samples.start)?;
        self.layer.forward(cx, x)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.pass(Call::InputGrad, 0)?;
        self.layer.input_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.pass(Call::WeightGrad, 0)?;
        self.layer.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.layer.params(visit);
    }
}

fn run(policy: Policy) -> Run {
    let model = Model {
        blocks: 3,
        tied: true,
        dropout: 0.1,
    };
    Run {
        stages: STAGES,
        policy,
        ..Run::new(model, 2 * MICRO_BATCHES, MICRO_BATCHES)
    }
}

/// The run's pipeline, with a trap in the middle layer of each stage.
fn assemble(run: &Run, schedule: &Schedule, board: &Arc<Mutex<Board>>) -> Assembled {
    let mut layers = run.model.layers();
    let cut = run.cut(layers.len());
    let remat_plan = run.remat_plan(&mut layers, schedule);
    for (stage, part) in cut.iter().enumerate() {
        let place = part.start + part.len() / 2;
        let layer = layers.remove(place);
        let board = board.clone();
        layers.insert(
            place,
            Box::new(Trapped {
                layer,
                stage,
                board,
            }),
        );
    }
    let assembly = Assembly {
        layers,
        cut,
        schedule: schedule.clone(),
        remat_plan,
        devices: vec![DeviceId::Cpu; STAGES],
        loss: Loss::CrossEntropy,
        optimizer: Some(run.optimizer.clone()),
        seed: 7,
    };
    assembly
        .build(&Host::new(2).expect("threads"))
        .expect("a valid assembly")
}

fn step(run: &Run, assembled: &mut Assembled) -> std::result::Result<[u64; 2], PipelineError> {
    let pipeline = &mut assembled.pipeline;
    let loss: f64 = pipeline.step(run.items(0))?.losses.iter().sum();
    merge_ties(pipeline)?;
    Ok([loss.to_bits(), gradient_norm(pipeline)?.to_bits()])
}

/// The action in which the call is made.
fn action(trap: Trap, schedule: &Schedule) -> Action {
    let split = schedule
        .lanes()
        .iter()
        .flatten()
        .any(|action| action.op == Op::WeightGrad);
    let op = match trap.call {
        Call::Forward => Op::Forward,
        Call::WeightGrad if split => Op::WeightGrad,
        _ if split => Op::InputGrad,
        _ => Op::Backward,
    };
    Action::new(trap.stage, op, trap.micro_batch)
}

fn is_as_planted(error: &PipelineError, kind: Kind) -> bool {
    let out_of_memory = |error: &PipelineError| {
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(gpipe_tensor::Error::OutOfMemory { bytes: 7 }) = error.downcast_ref() {
                return true;
            }
            cause = error.source();
        }
        false
    };
    match kind {
        Kind::Panic => {
            matches!(error, PipelineError::Panicked { message, .. } if message == "a trap")
        }
        Kind::Error => error.to_string().ends_with("a trap") && !out_of_memory(error),
        Kind::OutOfMemory => out_of_memory(error),
    }
}

/// Sets every trap in turn; how many were sprung. `set_so_far` tells others that it goes on.
fn spring_all(run: &Run, schedule: &Schedule, set_so_far: &AtomicUsize) -> usize {
    let board = Arc::new(Mutex::new(Board::default()));
    let set = |trap| {
        *board.lock().expect("no panic holds it") = Board {
            trap,
            ..Board::default()
        }
    };
    let mut assembled = assemble(run, schedule, &board);
    let expected = step(run, &mut assembled).expect("a step");
    let mut sprung = 0;
    for stage in 0..STAGES {
        for micro_batch in 0..MICRO_BATCHES {
            for call in [
                Call::Forward,
                Call::Again,
                Call::InputGrad,
                Call::WeightGrad,
            ] {
                for kind in [Kind::Error, Kind::Panic, Kind::OutOfMemory] {
                    let trap = Trap {
                        stage,
                        micro_batch,
                        call,
                        kind,
                    };
                    set(Some(trap));
                    set_so_far.fetch_add(1, Ordering::Relaxed);
                    let outcome = step(run, &mut assembled);
                    if board.lock().expect("no panic holds it").sprung {
                        let error = outcome.expect_err("a trap was sprung");
                        let place = Place::Action(action(trap, schedule));
                        assert_eq!(error.place(), Some(place), "{trap:?}: {error}");
                        assert!(is_as_planted(&error, kind), "{trap:?}: {error:?}");
                        sprung += 1;
                    } else {
                        assert!(call == Call::Again, "{trap:?} was not sprung");
                        assert_eq!(outcome.expect("no trap"), expected);
                    }
                    set(None);
                    let next = step(run, &mut assembled).expect("no trap");
                    assert_eq!(next, expected, "after {trap:?}");
                    assert_eq!(assembled.transit.live_bytes(), 0, "after {trap:?}");
                }
            }
        }
    }
    sprung
}

#[test]
fn a_layer_that_fails_anywhere_is_heard_of_and_leaves_nothing() {
    let (policies, schedules) = if std::env::var_os("GPIPE_EXAM").is_some() {
        (
            vec![Policy::Stage, Policy::Keep, Policy::Every(1)],
            vec![
                gpipe(STAGES, MICRO_BATCHES),
                one_f_one_b(STAGES, MICRO_BATCHES),
                zb_h1(STAGES, MICRO_BATCHES),
            ],
        )
    } else {
        (
            vec![Policy::Stage],
            vec![one_f_one_b(STAGES, MICRO_BATCHES)],
        )
    };
    let mut sprung = 0;
    for schedule in schedules {
        let schedule = schedule.expect("a size");
        for &policy in &policies {
            let schedule = schedule.clone();
            let (done, ended) = mpsc::channel();
            let set_so_far = Arc::new(AtomicUsize::new(0));
            let counter = set_so_far.clone();
            let worker = std::thread::spawn(move || {
                let _ = done.send(spring_all(&run(policy), &schedule, &counter));
            });
            let mut before = 0;
            // A hang is silence: a trap takes milliseconds.
            sprung += loop {
                let outcome = ended.recv_timeout(Duration::from_secs(60));
                let now = set_so_far.load(Ordering::Relaxed);
                match outcome {
                    Ok(count) => break count,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        assert!(now > before, "a step hangs under {policy}");
                        before = now;
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        std::panic::resume_unwind(worker.join().expect_err("it sent nothing"))
                    }
                }
            };
        }
    }
    println!("exam F1 {sprung}/{sprung}");
}
