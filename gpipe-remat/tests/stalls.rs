//! A layer that stalls in any phase of training, from the first step on: passes, norm, clipped update,
//! ties, commit, evaluation and the copy for a checkpoint. The call ends at its deadline and names the
//! stage and what it was doing; a deadline that is off waits.

mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::{Model, Run};
use gpipe_layers::{Cost, Flow, Layer, Loss, Param, PassContext, Pending, Result, Saved};
use gpipe_remat::{Assembled, Assembly, Error, copy_owned, optimizer_step};
use gpipe_sched::{Doing, Op, Part, PipelineError};
use gpipe_tensor::{DeviceId, Host, Tensors};

const STAGES: usize = 2;
const MICRO_BATCHES: usize = 3;
/// Long for work that takes microseconds, on a machine that runs other tests too.
const LIMIT: Duration = Duration::from_millis(700);
const HANG: Duration = Duration::from_secs(60);

/// A call of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Forward,
    WeightGrad,
    Params,
    Commit,
}

/// A phase of training: the call that stalls and how many of its kind pass before, and what the error
/// says.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Evaluation,
    Forward,
    Backward,
    /// The visits of [`optimizer_step`], in order.
    Visit(usize, &'static str),
    Commit,
    Copy,
}

const PHASES: [Phase; 12] = [
    Phase::Evaluation,
    Phase::Forward,
    Phase::Backward,
    Phase::Visit(0, "the merging of tied gradients"),
    Phase::Visit(1, "the merging of tied gradients"),
    Phase::Visit(2, "the gradient norm"),
    Phase::Visit(3, "the update"),
    Phase::Visit(4, "the sharing of tied parameters"),
    Phase::Visit(5, "the sharing of tied parameters"),
    Phase::Visit(6, "the sharing of tied parameters"),
    Phase::Commit,
    Phase::Copy,
];

#[derive(Clone, Copy, Debug)]
struct Case {
    phase: Phase,
    stage: usize,
    /// Of a pass.
    micro_batch: usize,
    /// Steps made before.
    before: u64,
}

impl Case {
    /// The case of a number: every phase, and any stage, micro-batch and step.
    fn new(number: usize) -> Self {
        let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let pick = |shift: u32, count: u64| (mixed >> shift) % count;
        Self {
            phase: PHASES[number % PHASES.len()],
            stage: pick(0, STAGES as u64) as usize,
            micro_batch: pick(8, MICRO_BATCHES as u64) as usize,
            before: pick(16, 3),
        }
    }

    /// The call that stalls, and how many of its kind pass before.
    fn call(&self) -> (Call, usize) {
        match self.phase {
            Phase::Evaluation | Phase::Forward => (Call::Forward, self.micro_batch),
            Phase::Backward => (Call::WeightGrad, self.micro_batch),
            Phase::Visit(visit, _) => (Call::Params, visit),
            Phase::Commit => (Call::Commit, 0),
            Phase::Copy => (Call::Params, 0),
        }
    }

    fn is_named(&self, doing: Doing) -> bool {
        let op = match self.phase {
            Phase::Evaluation | Phase::Forward => Op::Forward,
            Phase::Backward => Op::Backward,
            Phase::Visit(_, task) => return self.is_visit(doing, task),
            Phase::Commit => return self.is_visit(doing, "the commit"),
            Phase::Copy => return self.is_visit(doing, "the copy"),
        };
        matches!(doing, Doing::Acting(action)
            if (action.stage, action.op, action.micro_batch) == (self.stage, op, self.micro_batch))
    }

    fn is_visit(&self, doing: Doing, task: &'static str) -> bool {
        let part = Part::Stage(self.stage);
        doing == Doing::Visiting { part, task }
    }
}

/// The stall that is set: stage, call and how many of its kind pass before.
type Board = Arc<Mutex<Option<(usize, Call, usize)>>>;

struct Stalling {
    layer: Box<dyn Layer>,
    stage: usize,
    board: Board,
}

impl Stalling {
    fn pass(&self, call: Call) {
        let here = |board: &Board| match &mut *board.lock().unwrap() {
            Some((stage, set, 0)) => (*stage, *set) == (self.stage, call),
            Some((stage, set, before)) if (*stage, *set) == (self.stage, call) => {
                *before -= 1;
                false
            }
            _ => false,
        };
        while here(&self.board) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Layer for Stalling {
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
        self.pass(Call::Forward);
        self.layer.forward(cx, x)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.layer.input_grad(saved, dy)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        self.pass(Call::WeightGrad);
        self.layer.weight_grad(pending)
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        self.pass(Call::Commit);
        self.layer.commit_mini_batch()
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.pass(Call::Params);
        self.layer.params(visit);
    }
}

fn run() -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.0,
    };
    Run {
        stages: STAGES,
        ..Run::new(model, MICRO_BATCHES, MICRO_BATCHES)
    }
}

fn assemble(run: &Run, board: &Board) -> Assembled {
    let (mut layers, schedule) = (run.model.layers(), run.schedule());
    let cut = run.cut(layers.len());
    let remat_plan = run.remat_plan(&mut layers, &schedule);
    for (stage, part) in cut.iter().enumerate() {
        let layer = layers.remove(part.start + 1);
        let board = board.clone();
        let stalling = Stalling {
            layer,
            stage,
            board,
        };
        layers.insert(part.start + 1, Box::new(stalling));
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
    assembly.build(&host).expect("a valid assembly")
}

/// Trains until the stall.
fn train(case: &Case, board: &Board, limit: Option<Duration>) -> std::result::Result<(), Error> {
    let run = run();
    let mut assembled = assemble(&run, board);
    let pipeline = &mut assembled.pipeline;
    let (call, skip) = case.call();
    let stall = || *board.lock().unwrap() = Some((case.stage, call, skip));
    for step in 0..=case.before {
        let is_last = step == case.before;
        if is_last {
            pipeline.set_deadline(limit);
        }
        if is_last && matches!(case.phase, Phase::Evaluation) {
            stall();
            let mut items = run.items(step);
            items
                .iter_mut()
                .for_each(|item| item.micro_batch.train = false);
            pipeline.forward(items)?;
        }
        if is_last && matches!(case.phase, Phase::Forward | Phase::Backward) {
            stall();
        }
        pipeline.step(run.items(step))?;
        if is_last && matches!(case.phase, Phase::Visit(..) | Phase::Commit) {
            stall();
        }
        // A norm this small clips.
        optimizer_step(pipeline, &run.optimizer, 0.01, step, 1e-3)?;
    }
    stall();
    let device = assembled.transit.clone();
    copy_owned(&mut assembled.pipeline, &device)?;
    Ok(())
}

/// What is wrong with the answer to a stall, if anything.
fn fault(case: &Case) -> Option<String> {
    let board = Board::default();
    let trained = train(case, &board, Some(LIMIT));
    *board.lock().unwrap() = None;
    match trained {
        Err(Error::Pipeline(PipelineError::Overdue { stuck, .. })) => {
            let named = |stuck: &gpipe_sched::Stuck| {
                stuck.device == case.stage && case.is_named(stuck.doing)
            };
            let named = stuck.iter().any(named);
            (!named).then(|| format!("{case:?}: {stuck:?}"))
        }
        other => Some(format!("{case:?}: {other:?}")),
    }
}

#[test]
fn a_stall_in_any_phase_of_training_is_named() {
    let count = match std::env::var_os("GPIPE_EXAM") {
        Some(_) => 300,
        None => PHASES.len(),
    };
    let cases: Vec<Case> = (0..count).map(Case::new).collect();
    let mut faults = Vec::new();
    for cases in cases.chunks(PHASES.len()) {
        thread::scope(|scope| {
            let threads: Vec<_> = cases
                .iter()
                .map(|case| scope.spawn(|| fault(case)))
                .collect();
            faults.extend(
                threads
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap()),
            );
        });
    }
    println!("exam F3 {}/{count}", count - faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_deadline_that_is_off_waits_for_a_stall_to_end() {
    let board = Board::default();
    let case = Case::new(5);
    let (done, ended) = mpsc::channel();
    let caller = {
        let board = board.clone();
        thread::spawn(move || {
            let trained = train(&case, &board, None);
            done.send(trained.is_ok())
        })
    };
    assert!(ended.recv_timeout(LIMIT).is_err(), "nothing stalled");
    // The copy after it stalls too, until this.
    while !caller.is_finished() {
        *board.lock().unwrap() = None;
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ended.recv_timeout(HANG), Ok(true));
    caller.join().unwrap().unwrap();
}
