//! A layer with state of its own: recorded by passes, applied at the commit of a mini-batch,
//! discarded at the beginning of the next. Failed steps, evaluations, recomputation and the step
//! that looks for a value that is not finite leave no trace in it, wherever the model is cut.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Model, Outcome, Run, VOCAB};
use gpipe_layers::layers::{Residual, Sequential};
use gpipe_layers::{
    Cost, Error, Flow, Layer, Loss, Memory, Param, PassContext, Pending, Result, Saved,
};
use gpipe_remat::{Assembled, Assembly, Policy, first_non_finite};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

/// What a layer knows of the batches that were committed.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    mean: f64,
    weight_gradients: u64,
    commits: u64,
}

/// Plans what goes wrong.
#[derive(Debug, Default)]
struct Board {
    /// Fails the weight gradient of this many calls from now; 0 never.
    fail_in: u64,
    begins: u64,
    state: State,
}

/// Hands its input on, and keeps a running mean of it.
struct Running {
    name: String,
    board: Arc<Mutex<Board>>,
    /// The sum and count of each micro-batch, by its first sample.
    recorded: Mutex<BTreeMap<u64, (f64, usize)>>,
    weight_gradients: u64,
}

impl Running {
    fn new(name: &str, board: Arc<Mutex<Board>>) -> Self {
        Self {
            name: name.into(),
            board,
            recorded: Mutex::default(),
            weight_gradients: 0,
        }
    }
}

impl Layer for Running {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        Ok(Cost::new(inputs.to_vec()).with_memory(Memory::handed_on(1)))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        if cx.train {
            let values = x[0].to_f32s().map_err(Error::within(&self.name))?;
            let sum = values.iter().map(|&value| f64::from(value)).sum();
            let mut recorded = self.recorded.lock().unwrap();
            recorded.insert(cx.samples.start, (sum, values.len()));
        }
        Ok((x, Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        let mut board = self.board.lock().unwrap();
        if board.fail_in > 0 {
            board.fail_in -= 1;
            if board.fail_in == 0 {
                return Err(Error::Config("planted".into()));
            }
        }
        self.weight_gradients += 1;
        Ok(())
    }

    fn begin_mini_batch(&mut self) -> Result<()> {
        self.board.lock().unwrap().begins += 1;
        self.recorded.lock().unwrap().clear();
        self.weight_gradients = 0;
        Ok(())
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        let recorded = std::mem::take(&mut *self.recorded.lock().unwrap());
        let sum: f64 = recorded.values().map(|(sum, _)| sum).sum();
        let count: usize = recorded.values().map(|(_, count)| count).sum();
        let state = &mut self.board.lock().unwrap().state;
        state.mean += 0.1 * (sum / count as f64 - state.mean);
        state.weight_gradients += std::mem::take(&mut self.weight_gradients);
        state.commits += 1;
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

fn run(stages: usize, policy: Policy) -> Run {
    let model = Model {
        blocks: 2,
        tied: false,
        dropout: 0.1,
    };
    Run {
        stages,
        policy,
        ..Run::new(model, 8, 4)
    }
}

/// The run's pipeline with two layers of state, one of them inside a residual.
fn assemble(run: &Run, boards: &[Arc<Mutex<Board>>; 2]) -> Assembled {
    let mut layers = run.model.layers();
    layers.insert(3, Box::new(Running::new("running", boards[0].clone())));
    let inner = Running::new("half.running", boards[1].clone());
    let residual = Residual::new("half", Sequential::new().then(inner));
    layers.insert(layers.len() - 1, Box::new(residual));
    let schedule = run.schedule();
    let assembly = Assembly {
        cut: run.cut(layers.len()),
        remat_plan: run.remat_plan(&mut layers, &schedule),
        layers,
        schedule,
        devices: vec![DeviceId::Cpu; run.stages],
        loss: Loss::CrossEntropy,
        optimizer: Some(run.optimizer.clone()),
        seed: 7,
    };
    let host = Host::new(1).expect("threads");
    assembly.build(&host).expect("a valid assembly")
}

fn commit(assembled: &mut Assembled) {
    let pipeline = &mut assembled.pipeline;
    pipeline.each(|_, stage| stage.commit()).expect("a commit");
}

fn states(boards: &[Arc<Mutex<Board>>; 2]) -> [State; 2] {
    [0, 1].map(|i| boards[i].lock().unwrap().state.clone())
}

/// Three steps; between them, if `disturbed`, everything that may not leave a trace.
fn train(run: &Run, disturbed: bool) -> ([State; 2], Outcome) {
    let boards: [Arc<Mutex<Board>>; 2] = std::array::from_fn(|_| Arc::default());
    let mut assembled = assemble(run, &boards);
    let mut outcome = Outcome::default();
    for step in 0..run.steps {
        if disturbed {
            disturb(run, step, &mut assembled, &boards);
        }
        outcome.step(&mut assembled, run.items(step), run, step, true);
        commit(&mut assembled);
    }
    outcome.read(&mut assembled);
    (states(&boards), outcome)
}

fn disturb(run: &Run, step: u64, assembled: &mut Assembled, boards: &[Arc<Mutex<Board>>; 2]) {
    let before = states(boards);
    // A step that fails in the backward pass of one of its last micro-batches.
    for board in boards {
        board.lock().unwrap().fail_in = 3;
        let error = assembled.pipeline.step(run.items(step)).unwrap_err();
        assert!(error.to_string().contains("planted"), "{error}");
        board.lock().unwrap().fail_in = 0;
        assert_eq!(states(boards), before);
    }
    // A step that fails in the forward pass.
    let mut items = run.items(step);
    let mut tokens = items[2].input[0].u32s().unwrap().to_vec();
    tokens[0] = VOCAB as u32;
    let device = items[2].input[0].device().clone();
    let shape = items[2].input[0].shape().clone();
    items[2].input[0] = Tensor::from_u32(&device, shape, tokens).unwrap();
    assembled.pipeline.step(items).unwrap_err();
    assert_eq!(states(boards), before);
    // An evaluation.
    let begins = || [0, 1].map(|i| boards[i].lock().unwrap().begins);
    let begun = begins();
    let mut items = run.items(step + 10);
    for item in &mut items {
        item.micro_batch.train = false;
    }
    assembled.pipeline.forward(items).unwrap();
    assert_eq!(begins(), begun.map(|begins| begins + 1));
    assert_eq!(states(boards), before);
    // A step that is run again to look for a value that is not finite.
    let found = first_non_finite(&mut assembled.pipeline, run.items(step)).unwrap();
    assert_eq!(found, None);
    assert_eq!(states(boards), before);
}

#[test]
fn only_committed_steps_leave_a_trace() {
    let (expected, bits) = train(&run(1, Policy::Keep), false);
    for (stages, policy) in [
        (1, Policy::Keep),
        (1, Policy::Stage),
        (2, Policy::Stage),
        (2, Policy::Every(2)),
        (3, Policy::Stage),
        (3, Policy::ExceptLast),
        (3, Policy::Keep),
    ] {
        let run = run(stages, policy);
        let (got, outcome) = train(&run, true);
        assert_eq!(got, expected, "{run:?}");
        assert_eq!(outcome, bits, "{run:?}");
    }
    for state in expected {
        assert_eq!((state.commits, state.weight_gradients), (3, 12));
        assert!(state.mean.is_finite() && state.mean != 0.0);
    }
}

#[test]
fn discarding_twice_is_discarding_once() {
    let board: Arc<Mutex<Board>> = Arc::default();
    let inner = Sequential::new().then(Running::new("running", board.clone()));
    let mut layer = Residual::new("half", inner);
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let cx = |start: u64| PassContext::training(0, 0, start..start + 2);
    let pass = |layer: &Residual, start: u64, value: f32| {
        let x = Tensor::from_f32(&device, [2, 1], [value, value]).unwrap();
        layer.forward(&cx(start), Tensors::from_iter([x])).unwrap();
    };
    pass(&layer, 0, 100.0);
    layer.begin_mini_batch().unwrap();
    layer.begin_mini_batch().unwrap();
    pass(&layer, 2, 10.0);
    layer.commit_mini_batch().unwrap();
    assert_eq!(board.lock().unwrap().state.mean, 1.0);
}
