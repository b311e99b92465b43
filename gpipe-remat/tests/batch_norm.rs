//! Batch normalization in a pipeline: running statistics see each mini-batch once and whole, at any cut, under
//! any schedule and policy, and no step that failed.

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::thread;

use gpipe_layers::layers::{Activation, BatchNorm, Conv2d, Function, Layout, Linear, Pool2d};
use gpipe_layers::{Flow, Layer, Loss, Optimizer, Sgd};
use gpipe_remat::{
    Assembly, AssemblyBuilder, Error, Policy, Trainer, TrainingLoss, batch_items, copy_owned,
    predict_memory,
};
use gpipe_sched::{InMemory, Schedule, World, gpipe, interleaved, one_f_one_b, zb_h1};
use gpipe_tensor::ops::Window;
use gpipe_tensor::{DeviceId, Host, Tensor};

/// The bits of each parameter.
type Values = BTreeMap<String, Vec<u32>>;

const MICRO_BATCHES: usize = 8;

const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(1),
];

fn schedules(stages: usize) -> Vec<Schedule> {
    let mut all = vec![
        gpipe(stages, MICRO_BATCHES),
        one_f_one_b(stages, MICRO_BATCHES),
        zb_h1(stages, MICRO_BATCHES),
    ];
    if stages == 4 {
        all.push(interleaved(2, 2, MICRO_BATCHES));
    }
    all.into_iter().map(|made| made.expect("a size")).collect()
}

fn trainer(host: &Host, builder: AssemblyBuilder) -> Trainer {
    let optimizer = Optimizer::from(Sgd::default());
    let assembled = builder
        .optimizer(&optimizer)
        .build(host)
        .expect("a valid assembly");
    Trainer::new(assembled, optimizer, |_| 0.05)
}

/// The bits of every parameter, statistics included.
fn values(trainer: &mut Trainer) -> Values {
    let run = trainer.run();
    let owned = copy_owned(&mut run.pipeline, &run.transit).expect("room");
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let of = |param: gpipe_remat::ParamState| {
        let values = param.value.to_f32s().expect("floats");
        (param.name, bits(values))
    };
    owned.into_iter().map(of).collect()
}

/// Lingvo's check: 512 ones and then 512 zeros through a chain of normalizations. All micro-batches
/// are constant, so every layer but the first sees zeros, and the variance of the first is between
/// them.
#[test]
fn constant_micro_batches_have_the_statistics_of_the_closed_form() {
    let host = Host::new(1).expect("a thread");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let ones = (0..1024).map(|i| if i < 512 { 1.0 } else { 0.0 });
    let x =
        Tensor::from_f32(&cpu, [1024, 1, 1, 1], ones.collect::<Vec<_>>()).expect("a value each");
    for (norms, stages) in [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)] {
        for policy in POLICIES {
            for schedule in schedules(stages) {
                let layer = |i: usize| -> Box<dyn Layer> {
                    let layer = BatchNorm::new(format!("bn{i}"), 1);
                    Box::new(layer.with_eps(1e-3).with_momentum(0.003).biased())
                };
                let builder = Assembly::builder((0..norms).map(layer).collect())
                    .batch(1024, |samples| vec![Flow::f32([samples, 1, 1, 1])])
                    .stages(stages)
                    .with_schedule(schedule)
                    .policy(policy)
                    .loss(Loss::SquaredError);
                let mut trainer = trainer(&host, builder);
                // A step that is refused counts for nothing.
                let before = values(&mut trainer);
                let refused = trainer.step_on(|step| {
                    batch_items(from_ref(&x), MICRO_BATCHES, step, true, |rows| {
                        Ok(gpipe_remat::Target {
                            values: Tensor::from_f32(
                                &cpu,
                                [rows.len(), 1, 1, 1],
                                vec![2.0; rows.len()],
                            )?,
                            divisor: 1e-60,
                        })
                    })
                });
                assert!(matches!(refused, Err(Error::NonFinite(_))), "{refused:?}");
                assert_eq!(values(&mut trainer), before);
                trainer.step(from_ref(&x), &x).expect("a step");
                trainer.evaluate(from_ref(&x), &x).expect("an evaluation");
                let values = values(&mut trainer);
                for i in 0..norms {
                    let of = |part: &str| f32::from_bits(values[&format!("bn{i}.{part}")][0]);
                    let (mean, var) = match i {
                        0 => (0.0015, 0.99775),
                        _ => (0.0, 0.997),
                    };
                    let (got_mean, got_var) = (of("running_mean"), of("running_var"));
                    assert!((got_mean - mean).abs() < 1e-7, "bn{i}: {got_mean}");
                    assert!((got_var - var).abs() < 1e-6, "bn{i}: {got_var}");
                }
            }
        }
    }
}

/// A small network of images.
fn network() -> Vec<Box<dyn Layer>> {
    let conv = |name: &str, inputs| {
        let conv = Conv2d::new(name, inputs, 5, Window::square(3, 1, 1));
        Box::new(conv.without_bias()) as Box<dyn Layer>
    };
    let relu = |name: &str| Box::new(Activation::new(name, Function::Relu)) as Box<dyn Layer>;
    vec![
        conv("conv1", 3),
        Box::new(BatchNorm::new("bn1", 5)),
        relu("relu1"),
        conv("conv2", 5),
        Box::new(BatchNorm::new("bn2", 5)),
        relu("relu2"),
        Box::new(Pool2d::whole_average("pool")),
        Box::new(Linear::new("fc", 5, 4, Layout::OutIn)),
    ]
}

#[test]
fn a_network_has_the_same_bits_and_the_predicted_bytes_at_any_cut() {
    // Uneven: micro-batches of two samples and of one.
    const SAMPLES: usize = 13;
    let cpu = Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("a processor");
    let pixels = (0..SAMPLES * 6 * 6 * 3).map(|i| ((i * i + 5 * i) % 23) as f32 / 11.0 - 1.0);
    let x = Tensor::from_f32(&cpu, [SAMPLES, 6, 6, 3], pixels.collect::<Vec<_>>()).expect("pixels");
    let classes = (0..SAMPLES as u32).map(|i| i % 4).collect();
    let classes = Tensor::from_u32(&cpu, [SAMPLES], classes).expect("a class each");
    let builder = |stages: usize, schedule: Schedule, policy| {
        Assembly::builder(network())
            .batch(SAMPLES, |samples| vec![Flow::f32([samples, 6, 6, 3])])
            .stages(stages)
            .with_schedule(schedule)
            .policy(policy)
            .seed(3)
    };
    let mut wanted: Option<(Vec<u64>, Values)> = None;
    for (stages, threads) in [(1, 1), (2, 2), (4, 2), (8, 1)] {
        for policy in POLICIES {
            for schedule in schedules(stages) {
                let host = Host::new(threads).expect("threads");
                let mut trainer = trainer(&host, builder(stages, schedule.clone(), policy));
                let losses = (0..3).map(|_| {
                    let step = trainer.step(from_ref(&x), &classes).expect("a step");
                    step.loss.to_bits()
                });
                let losses: Vec<u64> = losses.collect();
                let predicted = predicted(builder(stages, schedule, policy), threads);
                let devices = trainer.run().devices.iter();
                let counted: Vec<u64> = devices.map(|device| device.peak_bytes()).collect();
                assert_eq!(counted, predicted, "{stages} stages, {policy}");
                let got = (losses, values(&mut trainer));
                match &wanted {
                    Some(wanted) => assert!(got == *wanted, "{stages} stages, {policy}"),
                    None => wanted = Some(got),
                }
            }
        }
    }
    let (losses, _) = wanted.expect("a run");
    assert!(f64::from_bits(losses[2]) < f64::from_bits(losses[0]));
}

/// Groups of micro-batches: the statistics are those of the whole batch to rounding, and replicas, which have some
/// of the groups each, give the bits of one process with all of them.
#[test]
fn groups_and_replicas_merge_the_statistics_of_the_whole_batch() {
    const SAMPLES: usize = 13;
    let cpu = Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("a processor");
    let pixels = (0..SAMPLES * 6 * 6 * 3).map(|i| ((i * i + 5 * i) % 23) as f32 / 11.0 + 1.0);
    let x = Tensor::from_f32(&cpu, [SAMPLES, 6, 6, 3], pixels.collect::<Vec<_>>()).expect("pixels");
    let classes = (0..SAMPLES as u32).map(|i| i % 4).collect();
    let classes = Tensor::from_u32(&cpu, [SAMPLES], classes).expect("a class each");
    let host = || Host::new(1).expect("a thread");
    let builder = |groups: usize| {
        Assembly::builder(network())
            .batch(SAMPLES, |samples| vec![Flow::f32([samples, 6, 6, 3])])
            .stages(2)
            .micro_batches(MICRO_BATCHES)
            .groups(groups)
            .schedule(one_f_one_b)
            .seed(3)
    };
    let run = |trainer: &mut Trainer| -> (Vec<u64>, Values) {
        let losses = (0..2).map(|_| {
            let step = trainer.step(from_ref(&x), &classes).expect("a step");
            step.loss.to_bits()
        });
        let losses = losses.collect();
        (losses, values(trainer))
    };
    let (_, plain) = run(&mut trainer(&host(), builder(1)));
    for groups in [2, 4, 6] {
        let (losses, expected) = run(&mut trainer(&host(), builder(groups)));
        for (name, bits) in expected.iter().filter(|(name, _)| name.contains("running")) {
            for (got, plain) in bits.iter().zip(&plain[name]) {
                let [got, plain] = [got, plain].map(|bits| f32::from_bits(*bits));
                assert!(
                    (got - plain).abs() <= 1e-5 * plain.abs().max(1.0),
                    "{name}: {got} {plain}"
                );
            }
        }
        for (replicas, zero) in [(2, false), (groups, true)] {
            thread::scope(|scope| {
                let (run, expected, losses) = (&run, &expected, &losses);
                for transport in InMemory::new(replicas) {
                    scope.spawn(move || {
                        let world = World::new(transport);
                        let optimizer = Optimizer::from(Sgd::default());
                        let part = builder(groups).replica(world.rank(), replicas, zero);
                        let plan = part.optimizer(&optimizer).plan(1).expect("a plan");
                        let end =
                            |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
                        let assembled = plan.build_over(&host(), Some(&world), end).expect("ranks");
                        let mut trainer = Trainer::new(assembled, optimizer, |_| 0.05);
                        let (own_losses, own) = run(&mut trainer);
                        assert_eq!(own_losses, *losses, "{groups} groups, {replicas} replicas");
                        // A checkpoint is that of rank 0.
                        assert!(
                            world.rank() > 0 || own == *expected,
                            "{groups} groups, {replicas} replicas"
                        );
                    });
                }
            });
        }
    }
}

/// Statistics of groups are out of the layers while they are merged, which takes a buffer.
#[test]
fn a_step_after_one_without_a_buffer_has_the_statistics_of_the_first() {
    let host = Host::new(1).expect("a thread");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let numbers = (0..64).map(|i| ((i * i + 5 * i) % 23) as f32 / 11.0);
    let x = Tensor::from_f32(&cpu, [16, 4], numbers.collect::<Vec<_>>()).expect("a value each");
    let make = |schedule: &Schedule| {
        let linear = |name| Box::new(Linear::new(name, 4, 4, Layout::OutIn));
        let layers: Vec<Box<dyn Layer>> = vec![
            linear("a"),
            Box::new(BatchNorm::new("bn1", 4)),
            linear("b"),
            Box::new(BatchNorm::new("bn2", 4)),
        ];
        let builder = Assembly::builder(layers)
            .batch(16, |samples| vec![Flow::f32([samples, 4])])
            .stages(2)
            .with_schedule(schedule.clone())
            .groups(4)
            .loss(Loss::SquaredError);
        trainer(&host, builder)
    };
    for schedule in schedules(2) {
        let mut clean = make(&schedule);
        clean.step(from_ref(&x), &x).expect("a step");
        let (expected, mut refused) = (values(&mut clean), 0);
        for device in 0..2 {
            for buffer in 0.. {
                let mut trainer = make(&schedule);
                let handle = trainer.run().devices[device].clone();
                handle.fail_after(buffer);
                let outcome = trainer.step(from_ref(&x), &x);
                if handle.disarm() {
                    outcome.expect("there were fewer buffers");
                    break;
                }
                outcome.expect_err("a buffer was refused");
                refused += 1;
                let again = trainer.step(from_ref(&x), &x);
                again.unwrap_or_else(|error| panic!("after buffer {buffer} of {device}: {error}"));
                assert!(values(&mut trainer) == expected, "{buffer} of {device}");
            }
        }
        assert!(refused > 100, "only {refused} buffers");
    }
}

/// The predicted peak of each stage.
fn predicted(builder: AssemblyBuilder, threads: usize) -> Vec<u64> {
    use gpipe_remat::{ModelCosts, ParameterBytes, micro_batches};
    let optimizer = Optimizer::from(Sgd::default());
    let mut plan = builder.optimizer(&optimizer).plan(threads).expect("a plan");
    let ranges = micro_batches(13, MICRO_BATCHES).expect("a size");
    let flow = |samples| vec![Flow::f32([samples, 6, 6, 3])];
    let costs = ModelCosts::new(&plan.layers, &ranges, flow).expect("a model");
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    memory.iter().map(|memory| memory.peak()).collect()
}
