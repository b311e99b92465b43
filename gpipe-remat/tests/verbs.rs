//! A parameter that fails or panics between two steps, where gradients are merged, measured and used,
//! values shared out, copied for a checkpoint or put back: the caller hears of it with the stage, the
//! other workers live on, and so does a pipeline that is dropped while its caller panics.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Model, Run};
use gpipe_layers::{
    Cost, Flow, Init, Kind, Layer, Loss, Optimizer, Param, PassContext, Pending, Result, Saved,
};
use gpipe_remat::{
    Assembled, Assembly, Policy, apply_update, copy_owned, gradient_norm, merge_ties, put_values,
    share_ties,
};
use gpipe_sched::{Part, PipelineError, Place};
use gpipe_tensor::{DeviceId, Host, Tensors};

const STAGES: usize = 4;

/// What a visit of the parameters comes upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Trap {
    None,
    /// A panic.
    Panic,
    /// A parameter of its own that nobody made.
    Unmade,
    /// The same under the name of a tied one.
    UnmadeTied,
}

const TRAPS: [Trap; 4] = [Trap::None, Trap::Panic, Trap::Unmade, Trap::UnmadeTied];

/// A layer whose parameters may be trapped.
struct Trapped {
    layer: Box<dyn Layer>,
    trap: Arc<AtomicU8>,
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
        self.layer.forward(cx, x)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.layer.input_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.layer.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.layer.params(visit);
        let unmade = |name: &str| Param::new(name, [1], Kind::Vector, Init::Zeros);
        match TRAPS[usize::from(self.trap.load(Ordering::SeqCst))] {
            Trap::None => {}
            Trap::Panic => panic!("a trap"),
            Trap::Unmade => visit(&mut unmade("a.trap")),
            Trap::UnmadeTied => visit(&mut unmade("transformer.wte.weight").tied()),
        }
    }
}

/// A pipeline of which each stage can be trapped.
fn assemble(run: &Run) -> (Assembled, Vec<Arc<AtomicU8>>) {
    let mut layers = run.model.layers();
    let (cut, schedule) = (run.cut(layers.len()), run.schedule());
    let remat_plan = run.remat_plan(&mut layers, &schedule);
    let mut traps = Vec::new();
    for part in &cut {
        let trap = Arc::new(AtomicU8::new(Trap::None as u8));
        let layer = layers.remove(part.start);
        traps.push(trap.clone());
        layers.insert(part.start, Box::new(Trapped { layer, trap }));
    }
    let assembly = Assembly {
        layers,
        cut,
        schedule,
        remat_plan,
        devices: vec![DeviceId::Cpu; STAGES],
        loss: Loss::CrossEntropy,
        optimizer: Some(run.optimizer.clone()),
        seed: 7,
    };
    let host = Host::new(2).expect("threads");
    (assembly.build(&host).expect("a valid assembly"), traps)
}

/// What a training loop does between steps, by name, with the traps that it can come upon.
type Verb = fn(&mut Assembled, &Optimizer) -> std::result::Result<(), PipelineError>;

const VERBS: [(&str, Verb, &[Trap]); 5] = [
    (
        "merge_ties",
        |run, _| merge_ties(&mut run.pipeline),
        &[Trap::Panic, Trap::UnmadeTied],
    ),
    (
        "gradient_norm",
        |run, _| gradient_norm(&mut run.pipeline).map(drop),
        &[Trap::Panic, Trap::Unmade],
    ),
    (
        "apply_update",
        |run, optimizer| apply_update(&mut run.pipeline, optimizer, 1e-3, 0, 1.0),
        &[Trap::Panic, Trap::Unmade],
    ),
    (
        "share_ties",
        |run, _| share_ties(&mut run.pipeline),
        &[Trap::Panic, Trap::UnmadeTied],
    ),
    (
        "copy_owned",
        |run, _| match copy_owned(&mut run.pipeline, &run.transit) {
            Err(gpipe_remat::Error::Pipeline(error)) => Err(error),
            copies => {
                copies.expect("an error of a worker");
                Ok(())
            }
        },
        &[Trap::Panic, Trap::Unmade],
    ),
];

fn run() -> Run {
    let model = Model {
        blocks: 3,
        tied: true,
        dropout: 0.0,
    };
    Run {
        stages: STAGES,
        policy: Policy::Stage,
        ..Run::new(model, 4, 4)
    }
}

/// Runs what may hang on a thread of its own.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(worker.join().expect_err("it sent nothing"))
        }
    }
}

#[test]
fn a_parameter_that_fails_between_steps_is_heard_of_with_its_stage() {
    let mut sprung = 0;
    for (name, verb, kinds) in VERBS {
        for &kind in kinds {
            for stage in 0..STAGES {
                in_time(move || {
                    let run = run();
                    let (mut assembled, traps) = assemble(&run);
                    assembled.pipeline.step(run.items(0)).expect("a step");
                    traps[stage].store(kind as u8, Ordering::SeqCst);
                    let error = verb(&mut assembled, &run.optimizer)
                        .expect_err("a trap is in the way of every visit");
                    let what = format!("{name}, {kind:?}, stage {stage}: {error}");
                    assert_eq!(
                        error.place(),
                        Some(Place::Visit(Part::Stage(stage))),
                        "{what}"
                    );
                    match kind {
                        Trap::Panic => assert!(
                            matches!(&error, PipelineError::Panicked { message, .. } if message == "a trap"),
                            "{what}"
                        ),
                        _ => assert!(
                            ["a.trap: ", "transformer.wte.weight: "]
                                .iter()
                                .any(|name| error.to_string().contains(name)),
                            "{what}"
                        ),
                    }
                    // Everybody else goes on, and so does this stage.
                    traps[stage].store(Trap::None as u8, Ordering::SeqCst);
                    assembled.pipeline.step(run.items(1)).expect(&what);
                    gradient_norm(&mut assembled.pipeline).expect(&what);
                });
                sprung += 1;
            }
        }
    }
    println!("exam F1 {sprung}/{sprung}");
}

#[test]
fn values_that_do_not_fit_change_nothing() {
    let run = run();
    let (mut assembled, _) = assemble(&run);
    let expected = assembled
        .pipeline
        .step(run.items(0))
        .expect("a step")
        .losses;
    let mut values: Vec<_> = copy_owned(&mut assembled.pipeline, &assembled.transit)
        .expect("room")
        .into_iter()
        .map(|owned| (owned.name, owned.value))
        .collect();
    let (name, _) = values.pop().expect("a model has parameters");
    let error = put_values(&mut assembled.pipeline, values).expect_err("one is missing");
    assert!(error.to_string().contains(&name), "{error}");
    let losses = assembled
        .pipeline
        .step(run.items(0))
        .expect("a step")
        .losses;
    assert_eq!(losses, expected);
}

#[test]
fn a_caller_that_panics_is_not_held_up_by_its_workers() {
    let message = in_time(|| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let run = run();
            let (mut assembled, _) = assemble(&run);
            assembled.pipeline.step(run.items(0)).expect("a step");
            panic!("the loader of the next batch");
        }));
        let panic = outcome.expect_err("it panics");
        panic.downcast_ref::<&str>().map(|text| (*text).to_owned())
    });
    assert_eq!(message.as_deref(), Some("the loader of the next batch"));
}
