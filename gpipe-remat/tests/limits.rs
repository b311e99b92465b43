//! Memory runs out: at any buffer of a step the caller gets the error with its place, nothing stays
//! behind, and the next step is right; and what is predicted to fit does run within that limit.

mod common;

use std::error::Error as _;

use common::{CONTEXT, Model, Order, Outcome, Run};
use gpipe_layers::{Flow, clip_factor};
use gpipe_remat::{
    Assembled, Assembly, ModelCosts, ParameterBytes, Policy, RematPlan, apply_update,
    gradient_norm, merge_ties, micro_batches, predict_memory, share_ties,
};
use gpipe_sched::{PipelineError, Place, Schedule, interleaved, zb_h1, zb_v};
use gpipe_tensor::{Device, Error};

fn full() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}

/// All that a training loop does in a step, but the update if `update_too` is false.
fn step(run: &Run, assembled: &mut Assembled, update_too: bool) -> Result<[u64; 2], PipelineError> {
    let pipeline = &mut assembled.pipeline;
    let loss: f64 = pipeline.step(run.items(0))?.losses.iter().sum();
    merge_ties(pipeline)?;
    let norm = gradient_norm(pipeline)?;
    if update_too {
        apply_update(pipeline, &run.optimizer, 0.01, 0, clip_factor(norm, 0.5))?;
        share_ties(pipeline)?;
    }
    Ok([loss.to_bits(), norm.to_bits()])
}

/// The cause at the end of the chain.
fn is_out_of_memory(error: &PipelineError) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let tensor = match error.downcast_ref() {
            Some(gpipe_remat::Error::Tensor(tensor)) => Some(tensor),
            _ => error.downcast_ref(),
        };
        if let Some(Error::OutOfMemory { .. } | Error::Limit { .. }) = tensor {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The n-th buffer of a step is refused, for every n, on every handle; how often that was.
fn refuse_every_buffer(run: &Run, schedule: &Schedule) -> Result<usize, String> {
    let mut assembled = run.assemble_with(schedule.clone());
    let expected = step(run, &mut assembled, false).map_err(|error| error.to_string())?;
    let live = |assembled: &Assembled| -> Vec<u64> {
        assembled.devices.iter().map(Device::live_bytes).collect()
    };
    let before = live(&assembled);
    let handles: Vec<Device> = assembled
        .devices
        .iter()
        .chain([&assembled.transit])
        .cloned()
        .collect();
    let mut refused = 0;
    for (index, handle) in handles.iter().enumerate() {
        for n in 0.. {
            handle.fail_after(n);
            let outcome = step(run, &mut assembled, false);
            if handle.disarm() {
                // There were fewer buffers than that.
                let got = outcome.map_err(|error| error.to_string())?;
                assert_eq!(got, expected, "buffer {n} of handle {index}");
                break;
            }
            let error = outcome.err().ok_or("a refused buffer went unnoticed")?;
            if !is_out_of_memory(&error) {
                return Err(format!("buffer {n} of handle {index}: {error:?}"));
            }
            if !matches!(
                error.place(),
                Some(Place::Action(_) | Place::Loss { .. } | Place::Visit(_))
            ) {
                return Err(format!(
                    "buffer {n} of handle {index} has no place: {error}"
                ));
            }
            refused += 1;
            let again = step(run, &mut assembled, false).map_err(|error| error.to_string())?;
            if again != expected {
                return Err(format!(
                    "the step after buffer {n} of handle {index} is another"
                ));
            }
            if live(&assembled) != before || assembled.transit.live_bytes() != 0 {
                return Err(format!(
                    "buffer {n} of handle {index} left something behind"
                ));
            }
        }
    }
    Ok(refused)
}

fn small(policy: Policy, stages: usize) -> Run {
    let model = Model {
        blocks: 1,
        tied: true,
        dropout: 0.1,
    };
    Run {
        stages,
        policy,
        ..Run::new(model, 4, 2)
    }
}

#[test]
fn a_step_without_a_buffer_fails_and_the_next_is_right() {
    let mut policies = vec![Policy::Stage, Policy::Keep];
    let mut schedules = vec![Order::OneFOneB.schedule(2, 2)];
    if full() {
        policies.extend([Policy::ExceptLast, Policy::Every(1)]);
        schedules.extend([Order::Gpipe.schedule(2, 2), zb_h1(2, 2).expect("a size")]);
    }
    let mut refused = 0;
    for policy in policies {
        for schedule in &schedules {
            let run = small(policy, 2);
            refused += refuse_every_buffer(&run, schedule)
                .unwrap_or_else(|fault| panic!("{policy}: {fault}"));
        }
    }
    assert!(refused > 100, "only {refused} buffers");
    println!("exam M3 {refused}/{refused}");
}

/// A run of any size, schedule and policy, the same for the same number.
fn any_run(number: u64) -> (Run, Schedule) {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % n
    };
    let batch = 1 + below(8);
    let micro_batches = 1 + below(batch);
    let model = Model {
        blocks: 1 + below(3),
        tied: below(2) == 0,
        dropout: [0.0, 0.2][below(2)],
    };
    let policies = [
        Policy::Keep,
        Policy::Stage,
        Policy::ExceptLast,
        Policy::Every(1 + below(4)),
    ];
    let policy = policies[below(policies.len())];
    let most = model.layers().len();
    let stages = 1 + below(most.min(4));
    let schedule = match below(5) {
        0 if 2 * stages <= most => zb_v(stages, micro_batches),
        1 if 2 * stages <= most => interleaved(stages, 2, micro_batches),
        2 => zb_h1(stages, micro_batches),
        3 => gpipe_sched::gpipe(stages, micro_batches),
        _ => gpipe_sched::one_f_one_b(stages, micro_batches),
    };
    let schedule = schedule.unwrap_or_else(|_| Order::Gpipe.schedule(stages, micro_batches));
    let run = Run {
        stages: schedule.stages(),
        policy,
        ..Run::new(model, batch, micro_batches)
    };
    (run, schedule)
}

/// The predicted peak of each stage.
fn predicted(run: &Run, schedule: &Schedule) -> Vec<u64> {
    let mut layers = run.model.layers();
    let samples = micro_batches(run.batch, run.micro_batches).expect("a valid size");
    let tokens = |samples| vec![Flow::u32([samples, CONTEXT])];
    let costs = ModelCosts::new(&layers, &samples, tokens).expect("a valid model");
    let cut = run.cut(layers.len());
    let weights = ParameterBytes::new(&mut layers, Some(&run.optimizer));
    let remat_plan =
        RematPlan::new(run.policy, &weights, &costs, &cut, schedule).expect("a remat plan");
    let memory = predict_memory(&weights, &costs, &cut, schedule, &remat_plan);
    memory.iter().map(gpipe_remat::StageMemory::peak).collect()
}

/// Two steps under a limit for each stage.
fn runs_within(run: &Run, schedule: &Schedule, limits: &[u64]) -> Result<(), PipelineError> {
    let mut assembled = run.assemble_with(schedule.clone());
    for (device, limit) in assembled.devices.iter().zip(limits) {
        device.set_limit(*limit);
    }
    for _ in 0..2 {
        step(run, &mut assembled, true)?;
    }
    Ok(())
}

#[test]
fn what_is_predicted_to_fit_runs_within_the_limit() {
    let runs = if full() { 500 } else { 40 };
    for number in 0..runs {
        let (run, schedule) = any_run(number);
        let limits = predicted(&run, &schedule);
        let ran = runs_within(&run, &schedule, &limits);
        ran.unwrap_or_else(|error| panic!("{error}, of {limits:?}: {run:?}"));
    }
    println!("exam M2 {runs}/{runs}");
}

#[test]
fn a_prediction_that_is_a_byte_short_is_seen() {
    let mut seen = 0;
    for number in 0..40 {
        let (run, schedule) = any_run(number);
        let mut limits = predicted(&run, &schedule);
        let stage = number as usize % limits.len();
        limits[stage] -= 1;
        let error = runs_within(&run, &schedule, &limits).expect_err("it does not fit");
        assert!(is_out_of_memory(&error), "{error:?}");
        seen += 1;
    }
    println!("exam M2 teeth {seen}/{seen}");
}

/// What the check of refused buffers would miss if it were blind.
#[test]
fn a_refusal_that_goes_unseen_is_a_fault() {
    let run = small(Policy::Stage, 2);
    let schedule = Order::OneFOneB.schedule(2, 2);
    let mut assembled = run.assemble_with(schedule);
    let expected = step(&run, &mut assembled, false).expect("a step");
    // Parameters that a failed step has changed give another next step.
    step(&run, &mut assembled, true).expect("a step");
    assert_ne!(step(&run, &mut assembled, false).expect("a step"), expected);
    // Another failure is no refused buffer.
    let mut items = run.items(0);
    items.pop();
    let error = assembled
        .pipeline
        .step(items)
        .expect_err("an item is missing");
    assert!(!is_out_of_memory(&error));
    // What is left behind is counted.
    let before = assembled.devices[0].live_bytes();
    let left = gpipe_tensor::Tensor::zeros(&assembled.devices[0], [4]).expect("room");
    assert_eq!(assembled.devices[0].live_bytes(), before + 16);
    drop(left);
    println!("exam M3 teeth 3/3");
}

/// A limit does not stay in the way once it is raised.
#[test]
fn a_run_goes_on_when_the_limit_is_raised() {
    let run = small(Policy::Keep, 2);
    let mut assembled = run.assemble();
    let expected = run.train();
    let device = assembled.devices[1].clone();
    device.set_limit(device.live_bytes());
    let error = assembled.pipeline.step(run.items(0)).expect_err("no room");
    assert!(error.to_string().contains("exceed the limit of"), "{error}");
    device.set_limit(u64::MAX);
    let mut got = Outcome::default();
    for step in 0..run.steps {
        got.step(&mut assembled, run.items(step), &run, step, true);
    }
    got.read(&mut assembled);
    assert_eq!(expected, got);
}

#[test]
fn more_micro_batches_than_a_schedule_has_are_refused() {
    let most = Schedule::MAX_CELLS;
    for parts in [most + 1, usize::MAX] {
        let error = micro_batches(usize::MAX, parts).unwrap_err().to_string();
        let expected = format!(
            "{parts} micro-batches but {} samples: use 1 to {most} micro-batches",
            usize::MAX
        );
        assert_eq!(error, expected);
    }
    let refused = Assembly::builder(small(Policy::Keep, 1).model.layers())
        .batch(usize::MAX, |samples| vec![Flow::u32([samples, CONTEXT])])
        .micro_batches(usize::MAX)
        .plan(1);
    assert!(matches!(
        refused,
        Err(gpipe_remat::Error::MicroBatches { .. })
    ));
}
