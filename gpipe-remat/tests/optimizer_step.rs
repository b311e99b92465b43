//! One call is the verbs in their order, to the bit; what is not finite is refused before a value is
//! touched; statistics are in no norm; a layer with state of its own hears of a step that succeeded
//! and of no other.

mod common;

use std::sync::{Arc, Mutex};

use common::{Model, Outcome, Run};
use gpipe_layers::{
    Cost, Flow, Init, Kind, Layer, Loss, Memory, Param, PassContext, Pending, Result, Saved,
};
use gpipe_remat::{
    Assembled, Assembly, Error, Policy, StepStats, copy_owned, first_non_finite, gradient_norm,
    merge_ties, optimizer_step,
};
use gpipe_tensor::{DeviceId, Host, Tensors};

fn run(stages: usize, tied: bool) -> Run {
    let model = Model {
        blocks: 2,
        tied,
        dropout: 0.1,
    };
    Run {
        stages,
        policy: Policy::Stage,
        ..Run::new(model, 8, 4)
    }
}

/// The bits of all values and of what the optimizer remembers.
fn bits(run: &mut Assembled) -> Vec<(String, Vec<Vec<u32>>)> {
    let states = copy_owned(&mut run.pipeline, &run.transit).expect("room");
    let bits = |tensor: &gpipe_tensor::Tensor| {
        let floats = tensor.to_f32s().expect("floats").into_iter();
        floats.map(f32::to_bits).collect()
    };
    let of = |state: gpipe_remat::ParamState| {
        let tensors = [&state.value].into_iter().chain(&state.state);
        (state.name.clone(), tensors.map(bits).collect())
    };
    states.into_iter().map(of).collect()
}

#[test]
fn one_call_is_the_verbs_at_any_number_of_stages() {
    let mut seen: Option<(Outcome, Vec<StepStats>)> = None;
    for tied in [true, false] {
        for stages in [1, 2, 4] {
            let run = run(stages, tied);
            let verbs = run.train();
            let mut assembled = run.assemble();
            let (mut outcome, mut stats) = (Outcome::default(), Vec::new());
            for step in 0..run.steps {
                let pipeline = &mut assembled.pipeline;
                let losses = pipeline.step(run.items(step)).expect("a step").losses;
                let made = optimizer_step(pipeline, &run.optimizer, 0.01, step, 0.5);
                let made = made.expect("an optimizer step");
                assert_eq!((made.step, made.lr), (step, 0.01));
                assert!(
                    step > 0 || made.clip_factor < 1.0,
                    "{made:?}: nothing was clipped"
                );
                outcome.losses.push(losses.iter().sum::<f64>().to_bits());
                outcome.norms.push(made.grad_norm.to_bits());
                stats.push(made);
            }
            outcome.read(&mut assembled);
            assert_eq!(outcome, verbs, "tied {tied}, {stages} stages");
            match &seen {
                Some((first, of_first)) if tied => {
                    assert_eq!(outcome.norms, first.norms, "{stages} stages");
                    assert_eq!(outcome.losses, first.losses, "{stages} stages");
                    assert_eq!(&stats, of_first, "{stages} stages");
                }
                _ => {}
            }
            seen.get_or_insert((outcome, stats));
        }
    }
}

#[test]
fn what_is_not_finite_changes_no_value() {
    for stages in [1, 2, 4] {
        let run = run(stages, true);
        let mut assembled = run.assemble();
        let step = |assembled: &mut Assembled, step, divisor: Option<f64>| {
            let mut items = run.items(step);
            if let Some(divisor) = divisor {
                items[2].target.divisor = divisor;
            }
            assembled.pipeline.step(items).expect("a step");
        };
        step(&mut assembled, 0, None);
        let pipeline = &mut assembled.pipeline;
        optimizer_step(pipeline, &run.optimizer, 0.01, 0, 0.5).expect("a step");
        let before = bits(&mut assembled);

        step(&mut assembled, 1, Some(1e-60));
        let pipeline = &mut assembled.pipeline;
        let error = optimizer_step(pipeline, &run.optimizer, 0.01, 1, 0.5);
        let error = error.expect_err("gradients are infinite");
        assert!(matches!(error, Error::NonFiniteGradients { norm } if !norm.is_finite()));
        assert_eq!(bits(&mut assembled), before, "{stages} stages");

        step(&mut assembled, 1, None);
        for (lr, clip, message) in [
            (f64::NAN, 0.5, "the learning rate is NaN"),
            (f64::INFINITY, 0.5, "the learning rate is inf"),
            (1e39, 0.5, "the learning rate is 1000"),
            (0.01, f64::NAN, "the largest gradient norm is NaN"),
            (0.01, -1.0, "the largest gradient norm is -1"),
        ] {
            let pipeline = &mut assembled.pipeline;
            let error = optimizer_step(pipeline, &run.optimizer, lr, 1, clip);
            let error = error.expect_err("a number that is of no use").to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(bits(&mut assembled), before, "{stages} stages");
        let pipeline = &mut assembled.pipeline;
        optimizer_step(pipeline, &run.optimizer, 0.01, 1, 0.5).expect("a step");
        assert_ne!(bits(&mut assembled), before, "{stages} stages");
    }
}

/// It left the gradients of some micro-batches.
#[test]
fn a_step_that_failed_makes_no_update() {
    for stages in [1, 2, 4] {
        let run = run(stages, true);
        let mut assembled = run.assemble();
        let before = bits(&mut assembled);
        let mut items = run.items(0);
        items[2].target.divisor = f64::NAN;
        assembled.pipeline.step(items).expect_err("no divisor");
        let pipeline = &mut assembled.pipeline;
        let error = optimizer_step(pipeline, &run.optimizer, 0.01, 0, 0.5);
        let error = error.expect_err("some gradients").to_string();
        assert!(error.contains("run a step again"), "{error}");
        assert_eq!(bits(&mut assembled), before, "{stages} stages");

        assembled.pipeline.step(run.items(0)).expect("a step");
        let pipeline = &mut assembled.pipeline;
        optimizer_step(pipeline, &run.optimizer, 0.01, 0, 0.5).expect("an update");
        assert_ne!(bits(&mut assembled), before, "{stages} stages");
    }
}

/// What a [`Counter`] knows and what goes wrong with it.
#[derive(Default)]
struct Board {
    committed: Vec<u64>,
    fails: bool,
    /// The gradient of the statistic.
    gradient: f32,
}

/// A layer with a statistic and with state of its own: the weight gradients of committed steps.
struct Counter {
    statistic: Param,
    board: Arc<Mutex<Board>>,
    passes: u64,
}

impl Counter {
    fn new(board: Arc<Mutex<Board>>) -> Self {
        Self {
            statistic: Param::new("counter.mean", [2], Kind::Statistic, Init::Zeros),
            board,
            passes: 0,
        }
    }
}

impl Layer for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        Ok(Cost::new(inputs.to_vec()).with_memory(Memory::handed_on(1)))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        Ok((x, Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        self.passes += 1;
        let gradient = self.board.lock().unwrap().gradient;
        let grad = self.statistic.grad_mut()?;
        grad.fill(gradient).expect("its only holder");
        Ok(())
    }

    fn begin_mini_batch(&mut self) -> Result<()> {
        self.passes = 0;
        Ok(())
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        self.board.lock().unwrap().committed.push(self.passes);
        let new = self.statistic.grad()?.clone();
        self.statistic.set_value(&new)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        if self.board.lock().unwrap().fails {
            // An update of it fails.
            visit(&mut Param::new(
                "counter.unmade",
                [1],
                Kind::Vector,
                Init::Zeros,
            ));
        }
        visit(&mut self.statistic);
    }
}

/// The run with a counter among its layers.
fn assemble(run: &Run, board: &Arc<Mutex<Board>>) -> Assembled {
    let mut layers = run.model.layers();
    layers.insert(4, Box::new(Counter::new(board.clone())));
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

#[test]
fn a_norm_leaves_statistics_out() {
    for stages in [1, 2, 4] {
        let run = run(stages, true);
        let board = Arc::new(Mutex::new(Board {
            gradient: 1000.0,
            ..Board::default()
        }));
        let mut assembled = assemble(&run, &board);
        assembled.pipeline.step(run.items(0)).expect("a step");
        let stats = optimizer_step(&mut assembled.pipeline, &run.optimizer, 0.01, 0, 0.5);
        let norm = stats.expect("a step").grad_norm;
        let plain = run.train().norms[0];
        assert_eq!(norm.to_bits(), plain, "{norm} at {stages} stages");
        // The layer made its value of it, which was neither scaled nor clipped.
        let states = copy_owned(&mut assembled.pipeline, &assembled.transit).expect("room");
        let statistic = states.iter().find(|state| state.name == "counter.mean");
        let values = statistic.expect("a parameter").value.to_f32s();
        assert_eq!(values.expect("floats"), [1000.0; 2]);

        // One that is not finite is refused all the same.
        board.lock().unwrap().gradient = f32::NAN;
        let before = bits(&mut assembled);
        assembled.pipeline.step(run.items(1)).expect("a step");
        let norm = gradient_norm(&mut assembled.pipeline).expect("a norm");
        assert!(norm.is_finite());
        let error = optimizer_step(&mut assembled.pipeline, &run.optimizer, 0.01, 1, 0.5);
        assert!(matches!(error, Err(Error::NonFiniteGradients { norm }) if norm.is_nan()));
        assert_eq!(bits(&mut assembled), before);
    }
}

/// As with other frameworks, a second update is made from the same gradients.
#[test]
fn gradients_of_ties_are_added_once_a_step() {
    for stages in [1, 2, 4] {
        let run = run(stages, true);
        let mut assembled = run.assemble();
        let pipeline = &mut assembled.pipeline;
        pipeline.step(run.items(0)).expect("a step");
        let mut norms = Vec::new();
        for step in 0..2 {
            let made = optimizer_step(pipeline, &run.optimizer, 0.01, step, 0.5);
            norms.push(made.expect("an update").grad_norm.to_bits());
        }
        assert_eq!(norms[0], norms[1], "{stages} stages");
        // The next step has gradients of its own.
        pipeline.step(run.items(0)).expect("a step");
        let before = gradient_norm(pipeline).expect("a norm");
        merge_ties(pipeline).expect("ties");
        assert_ne!(gradient_norm(pipeline).expect("a norm"), before);
    }
}

#[test]
fn state_of_a_layer_is_committed_by_a_step_that_succeeded_alone() {
    for stages in [1, 2, 4] {
        let run = run(stages, true);
        let board = Arc::new(Mutex::new(Board::default()));
        let committed = || board.lock().unwrap().committed.clone();
        let mut assembled = assemble(&run, &board);
        let pipeline = &mut assembled.pipeline;
        let step =
            |pipeline: &mut _, step| optimizer_step(pipeline, &run.optimizer, 0.01, step, 0.5);

        pipeline.step(run.items(0)).expect("a step");
        step(pipeline, 0).expect("a step");
        assert_eq!(committed(), [4]);

        // Refused, looked into, and with an update that fails in one of the stages.
        let mut items = run.items(1);
        items[1].target.divisor = 1e-60;
        pipeline.step(items.clone()).expect("a step");
        step(pipeline, 1).expect_err("gradients are infinite");
        first_non_finite(pipeline, items)
            .expect("a step")
            .expect("a bad value");
        pipeline.step(run.items(1)).expect("a step");
        board.lock().unwrap().fails = true;
        let error = step(pipeline, 1).expect_err("an update fails");
        assert!(matches!(error, Error::Pipeline(_)), "{error}");
        board.lock().unwrap().fails = false;
        assert_eq!(committed(), [4], "{stages} stages");

        // An evaluation records nothing, and a step after all of that what it did itself.
        let mut items = run.items(1);
        for item in &mut items {
            item.micro_batch.train = false;
        }
        pipeline.forward(items).expect("an evaluation");
        pipeline.step(run.items(1)).expect("a step");
        step(pipeline, 1).expect("a step");
        assert_eq!(committed(), [4, 4], "{stages} stages");

        // What the look for a bad value recorded is discarded: nothing of it could be committed.
        let found = first_non_finite(pipeline, run.items(2)).expect("a step");
        assert_eq!(found, None);
        gpipe_remat::commit_mini_batch(pipeline).expect("a commit");
        assert_eq!(committed(), [4, 4, 0], "{stages} stages");
    }
}

#[test]
fn the_example_of_the_readme_makes_optimizer_steps() {
    let readme = include_str!("../README.md");
    let example = readme.split("```").nth(1).expect("an example");
    assert!(readme.starts_with("# gpipe-remat"));
    assert!(
        example.contains("optimizer_step(&mut run.pipeline"),
        "{example}"
    );
    for verb in ["merge_ties", "apply_update", "share_ties"] {
        assert!(!example.contains(verb), "{verb}");
    }
}
