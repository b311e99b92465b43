//! A trainer makes the steps that the verbs make, to the bit, and goes on after a step that it refused;
//! a builder decides what is written out by hand; a loss from a function is one like the others.

mod common;
#[path = "trainer/refusals.rs"]
mod refusals;

use std::slice::from_ref;

use common::{Model, Outcome, Run};
use gpipe_layers::layers::{Activation, Function, Layout, Linear};
use gpipe_layers::{AdamW, Decay, Flow, Layer, Loss, Optimizer, Sgd, models};
use gpipe_remat::{
    Assembly, AssemblyBuilder, Error, Policy, Target, Trainer, Value, batch_items, copy_owned,
};
use gpipe_sched::{one_f_one_b, zb_h1};
use gpipe_tensor::{DeviceId, Host, Tensor};

fn run(stages: usize) -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.1,
    };
    Run {
        stages,
        policy: Policy::Stage,
        ..Run::new(model, 8, 4)
    }
}

#[test]
fn a_trainer_makes_the_steps_of_the_verbs() {
    for stages in [1, 2, 4] {
        let run = run(stages);
        let expected = run.train();
        let mut trainer =
            Trainer::new(run.assemble(), run.optimizer.clone(), |_| 0.01).with_clip(0.5);
        let mut outcome = Outcome::default();
        for step in 0..run.steps {
            assert_eq!(trainer.next_step(), step);
            if step == 1 {
                // A step that is refused: nothing changes, and the next has the same number.
                let mut bad = run.items(step);
                bad[1].target.divisor = 1e-60;
                let before = trainer.next_step();
                let error = trainer.step_on(|_| Ok(bad.clone())).expect_err("infinite");
                let Error::NonFinite(first) = error else {
                    panic!("{error}");
                };
                assert_eq!((first.micro_batch, first.layer.as_str()), (1, "loss"));
                assert_eq!(first.value, Value::InputGradient);
                assert_eq!(trainer.next_step(), before);
            }
            let made = trainer
                .step_on(|number| Ok(run.items(number)))
                .expect("a step");
            assert_eq!(made.stats.step, step);
            outcome.losses.push(made.loss.to_bits());
            outcome.norms.push(made.stats.grad_norm.to_bits());
        }
        outcome.read(&mut trainer.into_run());
        assert_eq!(outcome, expected, "{stages} stages");
    }
}

fn mlp() -> Vec<Box<dyn Layer>> {
    models::mlp(&models::MlpConfig {
        inputs: 3,
        hidden: vec![8, 8],
        outputs: 2,
        activation: Function::Relu,
        dropout: 0.0,
    })
    .expect("a valid model")
}

fn builder() -> AssemblyBuilder {
    Assembly::builder(mlp())
        .batch(12, |samples| vec![Flow::f32([samples, 3])])
        .optimizer(&Optimizer::from(AdamW {
            beta2: 0.99,
            weight_decay: 0.0,
            decay: Decay::Matrices,
            ..AdamW::default()
        }))
        .loss(Loss::SquaredError)
}

#[test]
fn a_builder_decides_what_is_not_given() {
    let plan = builder().plan(2).expect("a plan");
    assert_eq!(plan.devices, [DeviceId::Cpu; 2]);
    let schedule = &plan.schedule;
    assert_eq!((schedule.stages(), schedule.micro_batches()), (2, 8));
    assert_eq!(schedule, &gpipe_sched::gpipe(2, 8).expect("a schedule"));
    assert_eq!((plan.cut.len(), plan.cut[1].end), (2, 5));
    // No more stages than layers, no more micro-batches than samples.
    let plan = builder().plan(64).expect("a plan");
    assert_eq!((plan.cut.len(), plan.schedule.micro_batches()), (5, 12));

    let schedule = one_f_one_b(3, 4).expect("a schedule");
    let plan = builder().with_schedule(schedule.clone()).plan(1);
    let plan = plan.expect("a plan");
    assert_eq!((plan.devices.len(), &plan.schedule), (3, &schedule));
    let plan = builder().stages(2).micro_batches(3).schedule(zb_h1).plan(9);
    assert_eq!(plan.expect("a plan").schedule, zb_h1(2, 3).expect("one"));
}

#[test]
fn a_function_is_a_loss() {
    let host = Host::new(2).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let numbers = |count: usize, step: usize| -> Vec<f32> {
        let number = |i: usize| ((i * i * step + 3 * i) % 23) as f32 / 23.0 - 0.5;
        (0..count).map(number).collect()
    };
    let inputs = [Tensor::from_f32(&device, [12, 3], numbers(36, 7)).expect("room")];
    let targets = Tensor::from_f32(&device, [12, 2], numbers(24, 5)).expect("room");
    let optimizer = Optimizer::from(AdamW {
        beta2: 0.99,
        weight_decay: 0.0,
        decay: Decay::Matrices,
        ..AdamW::default()
    });

    let known = builder().build(&host).expect("a pipeline");
    let mut known = Trainer::new(known, optimizer.clone(), |_| 1e-2);
    let own = builder().build_with_loss(&host, |y: &Tensor, target: Tensor| {
        let off: Vec<f32> = (y.f32s()?.iter().zip(target.f32s()?))
            .map(|(y, target)| y - target)
            .collect();
        let loss = off.iter().map(|off| f64::from(off * off)).sum::<f64>();
        let dy: Vec<f32> = off.iter().map(|off| 2.0 * off / 24.0).collect();
        let dy = Tensor::from_f32(y.device(), y.shape().clone(), dy)?;
        Ok((loss / 24.0, dy))
    });
    let mut own = Trainer::new(own.expect("a pipeline"), optimizer, |_| 1e-2);
    let (mut first, mut last) = (None, 0.0);
    for _ in 0..20 {
        let a = known.step(&inputs, &targets).expect("a step");
        let b =
            own.step_on(|step| batch_items(&inputs, 8, step, true, |rows| Ok(targets.rows(rows)?)));
        let b = b.expect("a step");
        assert!((a.loss - b.loss).abs() < 1e-5 * a.loss, "{a:?} {b:?}");
        assert!((a.stats.grad_norm - b.stats.grad_norm).abs() < 1e-4 * a.stats.grad_norm);
        assert_eq!(b.outcome.losses.len(), 8);
        first.get_or_insert(a.loss);
        last = a.loss;
    }
    assert!(last < 0.9 * first.expect("a step"), "{first:?} {last}");
    // An evaluation is the loss of the next step, and changes nothing.
    let loss = known.evaluate(&inputs, &targets).expect("an evaluation");
    let few = [inputs[0].rows(0..3).expect("rows")];
    let targets_of_few = targets.rows(0..3).expect("rows");
    known
        .evaluate(&few, &targets_of_few)
        .expect("an evaluation");
    let next = known.step(&inputs, &targets).expect("a step").loss;
    assert!((loss - next).abs() < 1e-6 * next, "{loss} {next}");
    let error = known.step(&few, &targets).expect_err("too few").to_string();
    assert_eq!(
        error,
        "an input of 3 samples but targets for 12: give as many of each"
    );
}

/// Memory is predicted for the batch that the builder was given: a step has no more samples.
#[test]
fn a_step_of_more_samples_than_described_is_refused() {
    let host = Host::new(2).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let optimizer = Optimizer::from(Sgd::default());
    let builder = builder().micro_batches(4).optimizer(&optimizer);
    let built = builder.build(&host);
    let mut trainer = Trainer::new(built.expect("a pipeline"), optimizer, |_| 1e-2);
    let of = |samples: usize| {
        let tensor = |width: usize| {
            let values = vec![0.5; samples * width];
            Tensor::from_f32(&device, [samples, width], values).expect("room")
        };
        ([tensor(3)], tensor(2))
    };
    let (inputs, targets) = of(13);
    let error = trainer.step(&inputs, &targets).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "13 samples for a pipeline described with 12: use 12 or fewer, or describe more with `batch`"
    );
    trainer
        .evaluate(&inputs, &targets)
        .expect("an evaluation of any number");
    // The number of the step is that of the one that was refused.
    for (step, samples) in [12, 5].into_iter().enumerate() {
        let (inputs, targets) = of(samples);
        let made = trainer.step(&inputs, &targets).expect("a step");
        assert_eq!(made.stats.step, step as u64);
    }
}

/// A micro-batch's targets, their weights, and the weight of the whole batch.
type Weighted = (Tensor, Tensor, f64);

/// Micro-batches have unequal weights, so that a mean of their means would be another number.
#[test]
fn weighted_labels_are_divided_by_the_weight_of_the_whole_batch() {
    let host = Host::new(2).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let numbers = (0..36).map(|i| (i * i % 23) as f32 / 23.0 - 0.5);
    let inputs = [Tensor::from_f32(&device, [12, 3], numbers.collect::<Vec<_>>()).expect("room")];
    let labels = (0..12).map(|i| if i == 7 { u32::MAX } else { i % 2 });
    let labels = Tensor::from_u32(&device, [12], labels.collect()).expect("room");
    let weights = (0..12).map(|i| (i * i) as f32 / 16.0);
    let weights = Tensor::from_f32(&device, [12], weights.collect::<Vec<_>>()).expect("room");
    let loss = Loss::SmoothedCrossEntropy(0.1);
    let divisor = loss.weight(&labels, &weights).expect("weights");
    let train = |stages: usize, parts: usize| {
        let schedule = one_f_one_b(stages, parts).expect("a schedule");
        let optimizer = Optimizer::from(Sgd::default());
        let builder = builder().with_schedule(schedule).optimizer(&optimizer);
        let built =
            builder.build_with_loss(&host, move |y, (labels, weights, divisor): Weighted| {
                Ok(loss.weighted_gradient(y.clone(), &labels, &weights, divisor)?)
            });
        let mut trainer = Trainer::new(built.expect("a pipeline"), optimizer, |_| 0.5);
        let mut bits = Vec::new();
        for _ in 0..4 {
            let step = trainer.step_on(|step| {
                batch_items(&inputs, parts, step, true, |rows| {
                    let weights = weights.rows(rows.clone())?;
                    Ok((labels.rows(rows)?, weights, divisor))
                })
            });
            let step = step.expect("a step");
            bits.push((step.loss, step.stats.grad_norm));
        }
        bits
    };
    let whole = train(1, 1);
    assert!(whole[3].0 < whole[0].0, "{whole:?}");
    for parts in [1, 2, 5, 12] {
        let one = train(1, parts);
        for (a, b) in one.iter().zip(&whole) {
            assert!(
                (a.0 - b.0).abs() < 1e-6 && (a.1 - b.1).abs() < 1e-5,
                "{parts}: {a:?} {b:?}"
            );
        }
        for stages in [2, 3, 5] {
            assert_eq!(
                train(stages, parts),
                one,
                "{stages} stages, {parts} micro-batches"
            );
        }
    }
}

#[test]
fn all_verbs_work_with_any_end() {
    let host = Host::new(1).expect("threads");
    let own = builder().build_with_loss(&host, |y: &Tensor, (): ()| {
        let dy = Tensor::from_f32(y.device(), y.shape().clone(), vec![1.0; y.elements()])?;
        Ok((f64::NAN, dy))
    });
    let mut own = own.expect("a pipeline");
    let states = copy_owned(&mut own.pipeline, &own.transit).expect("room");
    let values = states
        .iter()
        .map(|state| (state.name.clone(), state.value.clone()));
    gpipe_remat::put_values(&mut own.pipeline, values.collect()).expect("the same model");
    let states = states.into_iter().map(|state| (state.name, state.state));
    gpipe_remat::put_states(&mut own.pipeline, states.collect()).expect("the same model");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let x = [Tensor::from_f32(&device, [12, 3], vec![0.5; 36]).expect("room")];
    let mut trainer = Trainer::new(
        own,
        Optimizer::from(Sgd {
            decay: Decay::Matrices,
            ..Sgd::default()
        }),
        |_| 1.0,
    );
    let error = trainer.step_on(|step| batch_items(&x, 4, step, true, |_| Ok(())));
    let error = error.expect_err("the loss is not a number").to_string();
    let expected =
        "micro-batch 0, layer loss, forward: the output is NaN: no parameter was changed";
    assert!(error.starts_with(expected), "{error}");
}

/// No learning rate would help.
#[test]
fn an_input_that_is_not_finite_is_named() {
    let host = Host::new(1).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let mut values = vec![0.5; 36];
    values[20] = f32::NAN;
    let x = [Tensor::from_f32(&device, [12, 3], values).expect("room")];
    let own = builder().build_with_loss(&host, |y: &Tensor, (): ()| {
        let dy = Tensor::from_f32(y.device(), y.shape().clone(), vec![1.0; y.elements()])?;
        Ok((y.f32s()?.iter().copied().map(f64::from).sum(), dy))
    });
    let own = own.expect("a pipeline");
    let sgd = Optimizer::from(Sgd::default());
    let mut trainer = Trainer::new(own, sgd, |_| 1.0);
    let error = trainer.step_on(|step| batch_items(&x, 4, step, true, |_| Ok(())));
    let error = error.expect_err("the loss is not a number");
    let Error::NonFinite(first) = &error else {
        panic!("{error}");
    };
    assert_eq!((first.micro_batch, &first.value), (2, &Value::Input));
    let expected = "micro-batch 2, layer input, forward: the input of the model holds NaN: no parameter was changed; \
                    give inputs that are finite";
    assert_eq!(error.to_string(), expected);
}

/// The last layer would name itself.
#[test]
fn a_gradient_of_another_shape_is_one_of_the_loss() {
    let host = Host::new(1).expect("threads");
    let device = host.device(DeviceId::Cpu).expect("a CPU");
    let x = [Tensor::from_f32(&device, [4, 3], vec![0.5; 12]).expect("room")];
    let others: [fn(&Tensor) -> gpipe_tensor::Result<Tensor>; 3] = [
        |y| Tensor::from_f32(y.device(), [y.elements()], vec![1.0; y.elements()]),
        |y| Tensor::from_f32(y.device(), [1, 3], vec![1.0; 3]),
        |y| Tensor::from_u32(y.device(), y.shape().clone(), vec![1; y.elements()]),
    ];
    for other in others {
        let layers: [Box<dyn Layer>; 2] = [
            Box::new(Linear::new("linear", 3, 3, Layout::OutIn)),
            Box::new(Activation::new("relu", Function::Relu)),
        ];
        let built = Assembly::builder(layers.into())
            .batch(4, |samples| vec![Flow::f32([samples, 3])])
            .stages(2)
            .micro_batches(2)
            .build_with_loss(&host, move |y: &Tensor, (): ()| Ok((1.0, other(y)?)));
        let mut own = built.expect("a pipeline");
        let batch = |train| batch_items(&x, 2, 0, train, |_| Ok(())).expect("four samples");
        let error = own.pipeline.step(batch(true)).expect_err("another shape");
        let said = error.to_string();
        assert!(
            said.starts_with("the loss stage, micro-batch 0: a gradient of"),
            "{said}"
        );
        assert!(said.ends_with("return one of that shape"), "{said}");
        // Nobody needs it there.
        own.pipeline.forward(batch(false)).expect("an evaluation");
    }
}

/// Its dropout masks would be those of another step.
#[test]
fn a_batch_of_another_step_is_refused_before_anything_is_trained() {
    let host = Host::new(1).unwrap();
    let cpu = host.device(DeviceId::Cpu).unwrap();
    let assembled = builder().build(&host).unwrap();
    let mut trainer = Trainer::new(assembled, Optimizer::from(AdamW::default()), |_| 0.1);
    let [x, y] = [3, 2].map(|width| Tensor::zeros(&cpu, [12, width]).unwrap());
    let target = |rows| {
        Ok(Target {
            values: y.rows(rows)?,
            divisor: 12.0,
        })
    };
    let constant = |_| batch_items(from_ref(&x), 4, 0, true, target);
    trainer.step_on(constant).unwrap();
    let refused = trainer.step_on(constant).unwrap_err().to_string();
    assert!(
        refused.starts_with("an item of step 0 in the batch of step 1: "),
        "{refused}"
    );
    assert_eq!(trainer.next_step(), 1);
}

#[test]
fn the_highest_number_of_a_step_is_refused_before_anything_is_trained() {
    let host = Host::new(1).unwrap();
    let cpu = host.device(DeviceId::Cpu).unwrap();
    let optimizer = Optimizer::from(AdamW::default());
    let assembled = builder().build(&host).unwrap();
    let mut trainer = Trainer::new(assembled, optimizer, |_| 0.1).with_first_step(u64::MAX);
    let refused = trainer.step_on(|_| panic!("a batch was made"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "step 18446744073709551615 has no next one: begin with a lower step (`with_first_step`)"
    );
    assert_eq!(trainer.next_step(), u64::MAX);
    let mut last = trainer.with_first_step(u64::MAX - 1);
    let [x, y] = [3, 2].map(|width| Tensor::zeros(&cpu, [12, width]).unwrap());
    let refused = last.step(&[], &y).unwrap_err().to_string();
    assert_eq!(
        refused,
        "no inputs: give the tensors that the first layer takes"
    );
    let step = last.step(&[x], &y).unwrap();
    assert_eq!(
        (step.stats.step, last.next_step()),
        (u64::MAX - 1, u64::MAX)
    );
}

#[test]
fn what_is_built_is_printed_and_sent_to_other_threads() {
    fn printed<T: std::fmt::Debug + Send>(one: &T) -> String {
        format!("{one:?}")
    }
    let plan = builder().stages(2).plan(1).unwrap();
    assert!(printed(&plan).contains("cut: [0.."));
    let assembled = plan.build(&Host::new(1).unwrap()).unwrap();
    let trainer = Trainer::new(assembled, Optimizer::from(Sgd::default()), |_| 0.1);
    let text = printed(&trainer.with_first_step(7));
    assert!(text.contains("Pipeline { stages: 2, ") && text.contains("step: 7"));
}
