//! Layers before the pipeline: they see the whole batch, at any cut and number of micro-batches, under any
//! schedule and policy, to the byte.

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::thread;

use gpipe_layers::layers::{Activation, BatchNorm, Conv2d, Dropout, Function};
use gpipe_layers::{Flow, Gelu, Layer, Loss, Optimizer, Sgd};
use gpipe_remat::{
    Assembly, AssemblyBuilder, Bytes, Error, ModelCosts, ParameterBytes, Policy, Times, Trainer,
    TrainingLoss, batch_items, copy_owned, group_items, micro_batches, predict_memory,
    simulator_costs,
};
use gpipe_sched::{
    Groups, InMemory, Schedule, ScheduleError, World, gpipe, one_f_one_b, simulate, zb_h1,
};
use gpipe_tensor::ops::Window;
use gpipe_tensor::{Device, DeviceId, Host, Tensor};

/// Uneven: micro-batches of two samples and of one.
const SAMPLES: usize = 13;
const SIDE: usize = 5;
const BEFORE: usize = 4;

type Kind = fn(usize, usize) -> Result<Schedule, ScheduleError>;

fn conv(name: &str) -> Box<dyn Layer> {
    Box::new(Conv2d::new(name, 3, 3, Window::square(3, 1, 1)).without_bias())
}

/// Four layers before the pipeline, and element by element what follows: no bit of it depends on the number of
/// micro-batches.
fn network() -> Vec<Box<dyn Layer>> {
    let gelu = |i: usize| {
        let name = format!("gelu{i}");
        Box::new(Activation::new(name, Function::Gelu(Gelu::Tanh))) as Box<dyn Layer>
    };
    let mut layers: Vec<Box<dyn Layer>> = vec![
        conv("conv1"),
        Box::new(BatchNorm::new("bn1", 3)),
        Box::new(Activation::new("relu1", Function::Relu)),
        Box::new(Dropout::new("drop1", 0.25).expect("a share")),
    ];
    layers.extend((0..5).map(gelu));
    layers
}

/// The same with parameters behind the others.
fn with_parameters() -> Vec<Box<dyn Layer>> {
    let mut layers = network();
    layers.insert(5, conv("conv2"));
    layers.push(Box::new(BatchNorm::new("bn2", 3)));
    layers
}

fn flow(samples: usize) -> Vec<Flow> {
    vec![Flow::f32([samples, SIDE, SIDE, 3])]
}

fn images(device: &Device) -> Tensor {
    let pixels = (0..SAMPLES * SIDE * SIDE * 3).map(|i| ((i * i + 5 * i) % 23) as f32 / 11.0 - 1.0);
    let pixels: Vec<f32> = pixels.collect();
    Tensor::from_f32(device, [SAMPLES, SIDE, SIDE, 3], pixels).expect("pixels")
}

fn optimizer() -> Optimizer {
    Optimizer::from(Sgd::default())
}

fn builder(layers: Vec<Box<dyn Layer>>, schedule: Schedule, policy: Policy) -> AssemblyBuilder {
    Assembly::builder(layers)
        .batch(SAMPLES, flow)
        .stages(schedule.stages())
        .with_schedule(schedule)
        .policy(policy)
        .loss(Loss::SquaredError)
        .optimizer(&optimizer())
        .seed(3)
}

fn trainer(host: &Host, builder: AssemblyBuilder) -> Trainer {
    let built = builder.build(host).expect("an assembly");
    Trainer::new(built, optimizer(), |_| 0.05)
}

/// The bits of every parameter, statistics included.
fn values(trainer: &mut Trainer) -> BTreeMap<String, Vec<u32>> {
    let run = trainer.run();
    let owned = copy_owned(&mut run.pipeline, &run.transit).expect("room");
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let of = |param: gpipe_remat::ParamState| {
        let values = param.value.to_f32s().expect("floats");
        (param.name, bits(values))
    };
    owned.into_iter().map(of).collect()
}

/// The predicted peak of each stage, and the simulated time of a step by FLOPs.
fn predicted(
    layers: fn() -> Vec<Box<dyn Layer>>,
    before: usize,
    groups: usize,
    schedule: Schedule,
    policy: Policy,
) -> (Vec<u64>, f64) {
    let parts = schedule.micro_batches();
    let builder = builder(layers(), schedule, policy)
        .groups(groups)
        .before(before);
    let mut plan = builder.plan(1).expect("a plan");
    let ranges = micro_batches(SAMPLES, parts).expect("a size");
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer()));
    let costs = ModelCosts::new(&plan.layers, &ranges, flow)
        .and_then(|costs| costs.with_groups(groups, &bytes))
        .and_then(|costs| costs.with_before(before, &plan.layers, flow))
        .expect("a model");
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    let times = Times::of_flops(&costs, 1e6);
    let costs = simulator_costs(&costs, &times, &plan.cut, &plan.schedule, &plan.remat_plan);
    let timeline = simulate(&plan.schedule, &costs[0]).expect("a timeline");
    let peaks = memory.iter().map(|memory| memory.peak());
    (peaks.collect(), timeline.makespan())
}

fn schedules(stages: usize, parts: usize) -> impl Iterator<Item = Schedule> {
    let kinds = [gpipe, one_f_one_b, zb_h1];
    kinds
        .into_iter()
        .map(move |kind| kind(stages, parts).expect("a size"))
}

const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(2),
];

/// Three steps; checks the counted bytes of the last.
fn steps(
    layers: fn() -> Vec<Box<dyn Layer>>,
    before: usize,
    groups: usize,
    schedule: &Schedule,
    policy: Policy,
) -> (Vec<u64>, BTreeMap<String, Vec<u32>>) {
    let host = Host::new(2).expect("threads");
    let x = images(&host.device(DeviceId::Cpu).expect("a processor"));
    let builder = builder(layers(), schedule.clone(), policy)
        .groups(groups)
        .before(before);
    let mut trainer = trainer(&host, builder);
    let losses = (0..3).map(|_| {
        let step = trainer.step(from_ref(&x), &x).expect("a step");
        step.loss.to_bits()
    });
    let losses: Vec<u64> = losses.collect();
    let counted = trainer.run().devices.iter();
    let counted: Vec<u64> = counted.map(|device| device.peak_bytes()).collect();
    let (predicted, _) = predicted(layers, before, groups, schedule.clone(), policy);
    let (stages, parts) = (schedule.stages(), schedule.micro_batches());
    assert_eq!(
        counted, predicted,
        "{stages} stages, {parts} parts, {policy}"
    );
    (losses, values(&mut trainer))
}

#[test]
fn they_are_those_of_one_device_on_the_whole_batch() {
    let one = gpipe(1, 1).expect("a size");
    let (_, expected) = steps(network, 0, 1, &one, Policy::Keep);
    for stages in [1, 2, 4] {
        for parts in [1, 4, 8] {
            for schedule in schedules(stages, parts) {
                let (_, got) = steps(network, BEFORE, 1, &schedule, Policy::Stage);
                assert_eq!(got, expected, "{stages} stages, {parts} parts");
            }
        }
    }
    // Micro-batches have other statistics: the comparison can fail.
    let (_, other) = steps(network, 0, 1, &gpipe(1, 4).expect("a size"), Policy::Keep);
    assert_ne!(other["bn1.weight"], expected["bn1.weight"]);
}

#[test]
fn bits_and_bytes_hold_for_every_cut_schedule_and_policy() {
    for (parts, groups) in [(4, 1), (8, 2), (5, 5)] {
        let mut expected = None;
        for stages in [1, 2, 4] {
            for schedule in schedules(stages, parts) {
                for policy in POLICIES {
                    let got = steps(with_parameters, BEFORE, groups, &schedule, policy);
                    let expected = expected.get_or_insert_with(|| got.clone());
                    assert!(got == *expected, "{stages} stages, {parts} parts, {policy}");
                    // Behind one more layer, the first of the pipeline keeps its part of their result until its weight
                    // gradient.
                    let got = steps(with_parameters, BEFORE + 1, groups, &schedule, policy);
                    assert!(got == *expected, "{stages} stages, {parts} parts, {policy}");
                }
            }
        }
    }
}

/// Replicas have some of the groups each: the bits of one process with all of them, and the predicted bytes.
#[test]
fn replicas_give_the_bits_of_one_process() {
    let host = || Host::new(1).expect("a thread");
    let x = images(&host().device(DeviceId::Cpu).expect("a processor"));
    let stages = |parts, groups, make: Kind| {
        Assembly::builder(with_parameters())
            .batch(SAMPLES, flow)
            .stages(2)
            .micro_batches(parts)
            .groups(groups)
            .schedule(make)
            .before(BEFORE)
            .policy(Policy::Stage)
            .loss(Loss::SquaredError)
            .optimizer(&optimizer())
            .seed(3)
    };
    let run = |trainer: &mut Trainer| {
        let losses = (0..2).map(|_| {
            let step = trainer.step(from_ref(&x), &x).expect("a step");
            (step.loss.to_bits(), step.stats.grad_norm.to_bits())
        });
        let losses: Vec<(u64, u64)> = losses.collect();
        (losses, values(trainer))
    };
    // No number of replicas divides the micro-batches evenly; four groups are no ascending sum.
    for (parts, groups, make) in [
        (7, 4, gpipe as Kind),
        (5, 4, one_f_one_b),
        (7, 4, zb_h1),
        (13, 6, one_f_one_b),
    ] {
        let expected = run(&mut trainer(&host(), stages(parts, groups, make)));
        for (replicas, zero) in [(2, false), (2, true), (groups, false)] {
            let case = format!("{parts} parts, {groups} groups, {replicas} replicas");
            let of_rank = |transport| {
                let world = World::new(transport);
                let replica = world.rank();
                let part = stages(parts, groups, make).replica(replica, replicas, zero);
                let mut plan = part.plan(1).expect("a plan");
                let ranges = micro_batches(SAMPLES, parts).expect("a size");
                let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer()));
                let bytes = match zero {
                    true => bytes.sharded(replica, replicas),
                    false => bytes,
                };
                let costs = ModelCosts::new(&plan.layers, &ranges, flow)
                    .and_then(|costs| costs.with_groups(groups, &bytes))
                    .and_then(|costs| costs.on_replica(replica, replicas))
                    .and_then(|costs| costs.with_before(BEFORE, &plan.layers, flow))
                    .expect("a model");
                let (cut, schedule) = (&plan.cut, &plan.schedule);
                let memory = predict_memory(&bytes, &costs, cut, schedule, &plan.remat_plan);
                let end = |last, transit| TrainingLoss::new(Loss::SquaredError, last, transit);
                let built = plan
                    .build_over(&host(), Some(&world), end)
                    .expect("replicas");
                let mut trainer = Trainer::new(built, optimizer(), |_| 0.05);
                let got = run(&mut trainer);
                assert_eq!(got.0, expected.0, "{case}");
                // A checkpoint is that of rank 0.
                assert!(replica > 0 || got.1 == expected.1, "{case}");
                let counted = trainer.run().devices.iter();
                let counted: Vec<u64> = counted.map(|device| device.peak_bytes()).collect();
                let predicted: Vec<u64> = memory.iter().map(|memory| memory.peak()).collect();
                assert_eq!(counted, predicted, "{case}");
            };
            thread::scope(|scope| {
                let of_rank = &of_rank;
                for transport in InMemory::new(replicas) {
                    scope.spawn(move || of_rank(transport));
                }
            });
        }
    }
}

#[test]
fn their_work_is_done_once() {
    let seconds = |before, stages, parts| {
        let schedule = gpipe(stages, parts).expect("a size");
        predicted(network, before, 1, schedule, Policy::Keep).1
    };
    let whole = seconds(0, 1, 1);
    for parts in [1, 4, 13] {
        let got = seconds(BEFORE, 1, parts);
        assert!((got - whole).abs() < 1e-9 * whole, "{parts}: {got} {whole}");
    }
    // Before the pipeline, nothing overlaps.
    assert!(seconds(BEFORE, 2, 13) > seconds(0, 2, 13));
}

#[test]
fn a_failed_step_leaves_nothing() {
    let host = Host::new(2).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let x = images(&cpu);
    let trainer = || {
        let schedule = one_f_one_b(2, 4).expect("a size");
        let builder = builder(with_parameters(), schedule, Policy::Stage).before(BEFORE);
        trainer(&host, builder)
    };
    let mut failing = trainer();
    let before = values(&mut failing);
    let refused = failing.step_on(|step| {
        group_items(from_ref(&x), 4, Groups::one(4), step, |rows| {
            Ok(gpipe_remat::Target {
                values: x.rows(rows)?,
                divisor: 1e-60,
            })
        })
    });
    assert!(matches!(refused, Err(Error::NonFinite(_))), "{refused:?}");
    assert_eq!(values(&mut failing), before);
    // Inputs of the micro-batch alone are not enough.
    let refused = failing.step_on(|step| {
        batch_items(from_ref(&x), 4, step, true, |rows| {
            Ok(gpipe_remat::Target {
                values: x.rows(rows)?,
                divisor: 1.0,
            })
        })
    });
    let error = refused.expect_err("inputs of a part").to_string();
    assert!(error.contains("`group_items`"), "{error}");
    let mut fresh = trainer();
    for trainer in [&mut failing, &mut fresh] {
        trainer.step(from_ref(&x), &x).expect("a step");
        trainer.evaluate(from_ref(&x), &x).expect("an evaluation");
    }
    assert_eq!(values(&mut failing), values(&mut fresh));
}

#[test]
fn assemblies_that_cannot_be_are_refused() {
    let schedule = || gpipe(2, 4).expect("a size");
    let refused = |builder: AssemblyBuilder| {
        let plan = builder.plan(1).err();
        plan.expect("a refusal").to_string()
    };
    let error = refused(builder(network(), schedule(), Policy::Keep).before(9));
    assert!(
        error.contains("9 layers before the pipeline of a model of 9"),
        "{error}"
    );
    let budget = Policy::Budget(Bytes(1 << 30));
    let error = refused(builder(network(), schedule(), budget).before(BEFORE));
    assert!(error.contains("use another policy"), "{error}");
}
