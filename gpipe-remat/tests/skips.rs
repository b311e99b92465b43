//! Random lists of layers with skip connections, nested and crossing: the same bits and the predicted
//! bytes at any cut, under any schedule and policy.

use gpipe_layers::layers::{Add, At, Fork, Layout, Linear, Permute};
use gpipe_layers::{Flow, Layer, Loss, Optimizer, Sgd};
use gpipe_remat::{
    Assembly, AssemblyBuilder, ModelCosts, ParameterBytes, Policy, Trainer, copy_owned,
    micro_batches, predict_memory,
};
use gpipe_sched::{Schedule, gpipe, interleaved, one_f_one_b, zb_h1};
use gpipe_tensor::{DeviceId, Host, Tensor};
use proptest::prelude::*;

const WIDTH: usize = 6;
/// Uneven: micro-batches of three samples and of two.
const SAMPLES: usize = 11;
const MICRO_BATCHES: usize = 4;
/// Most tensors in a flow.
const TENSORS: usize = 4;

/// A network of these choices: on a flow of up to [`TENSORS`] tensors, from one to one.
fn network(choices: &[(u8, u8)]) -> Vec<Box<dyn Layer>> {
    let linear = |i: usize| Linear::new(format!("linear{i}"), WIDTH, WIDTH, Layout::OutIn);
    let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(linear(0))];
    let mut tensors = 1;
    for (&(kind, place), i) in choices.iter().zip(1..) {
        let place = usize::from(place) % tensors;
        match kind % 4 {
            0 if tensors < TENSORS => {
                layers.push(Box::new(Fork::new(format!("fork{i}"))));
                tensors += 1;
            }
            1 if tensors > 1 => {
                layers.push(Box::new(Add::new(format!("add{i}"))));
                tensors -= 1;
            }
            2 if tensors > 1 => {
                let order = (0..tensors).map(|k| (k + 1 + place) % tensors);
                layers.push(Box::new(Permute::new(format!("permute{i}"), order)));
            }
            _ => layers.push(Box::new(At::new([place], linear(i)))),
        }
    }
    let last = (1..tensors).map(|i| Box::new(Add::new(format!("last{i}"))) as Box<dyn Layer>);
    layers.extend(last);
    layers.push(Box::new(linear(choices.len() + 1)));
    layers
}

fn input(samples: usize) -> Vec<Flow> {
    vec![Flow::f32([samples, WIDTH])]
}

fn assembly(
    layers: Vec<Box<dyn Layer>>,
    stages: usize,
    schedule: Schedule,
    policy: Policy,
) -> AssemblyBuilder {
    Assembly::builder(layers)
        .batch(SAMPLES, input)
        .stages(stages)
        .with_schedule(schedule)
        .policy(policy)
        .loss(Loss::SquaredError)
}

/// Losses of two steps and then the values of all parameters, as bits; counted bytes beside predicted ones.
fn train(builder: impl Fn() -> AssemblyBuilder) -> (Vec<u64>, [Vec<u64>; 2]) {
    let host = Host::new(2).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let tensor = |factor: usize| {
        let value = |i: usize| ((i * factor + 3) % 17) as f32 / 8.0 - 1.0;
        let values: Vec<f32> = (0..SAMPLES * WIDTH).map(value).collect();
        Tensor::from_f32(&cpu, [SAMPLES, WIDTH], values).expect("a value each")
    };
    let optimizer = Optimizer::from(Sgd::default());
    let assembled = builder().optimizer(&optimizer).build(&host);
    let mut trainer = Trainer::new(assembled.expect("an assembly"), optimizer.clone(), |_| 0.01);
    let mut bits = Vec::new();
    for _ in 0..2 {
        let step = trainer.step(&[tensor(5)], &tensor(7)).expect("a step");
        bits.push(step.loss.to_bits());
    }
    let devices = trainer.run().devices.iter();
    let counted = devices.map(|device| device.peak_bytes()).collect();
    let run = trainer.run();
    for param in copy_owned(&mut run.pipeline, &run.transit).expect("room") {
        let values = param.value.to_f32s().expect("floats");
        bits.extend(values.iter().map(|value| u64::from(value.to_bits())));
    }

    let mut plan = builder().optimizer(&optimizer).plan(2).expect("a plan");
    let ranges = micro_batches(SAMPLES, MICRO_BATCHES).expect("a size");
    let costs = ModelCosts::new(&plan.layers, &ranges, input).expect("a model");
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    let predicted = memory.iter().map(|memory| memory.peak()).collect();
    (bits, [counted, predicted])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_skips_give_the_same_bits_and_the_predicted_bytes_at_any_cut(
        choices in proptest::collection::vec((any::<u8>(), any::<u8>()), 4..14),
        stages in 2..7_usize,
        kind in 0..4_usize,
        policy in 0..5_usize,
    ) {
        let stages = stages.min(network(&choices).len());
        let schedule = match kind {
            0 => gpipe(stages, MICRO_BATCHES),
            1 => one_f_one_b(stages, MICRO_BATCHES),
            2 if stages % 2 == 0 => interleaved(stages / 2, 2, MICRO_BATCHES),
            _ => zb_h1(stages, MICRO_BATCHES),
        };
        let schedule = schedule.expect("a size");
        let policy = [
            Policy::Keep,
            Policy::Stage,
            Policy::ExceptLast,
            Policy::Every(1),
            Policy::Every(2),
        ][policy];
        let one = gpipe(1, MICRO_BATCHES).expect("a size");
        let (wanted, [counted, predicted]) =
            train(|| assembly(network(&choices), 1, one.clone(), Policy::Keep));
        prop_assert_eq!(counted, predicted);
        let (got, [counted, predicted]) =
            train(|| assembly(network(&choices), stages, schedule.clone(), policy));
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(counted, predicted);
    }
}

/// A skip around four layers, at this place of the flow.
fn skip(place: usize) -> Vec<Box<dyn Layer>> {
    let linear = |i: usize| Linear::new(format!("linear{i}"), WIDTH, WIDTH, Layout::OutIn);
    let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(linear(0)), Box::new(Fork::new("fork"))];
    for i in 1..5 {
        layers.push(Box::new(At::new([1 - place], linear(i))));
    }
    layers.push(Box::new(Add::new("add")));
    layers
}

#[test]
fn a_skip_costs_the_stages_between_the_same_at_any_place() {
    for policy in [Policy::Stage, Policy::Every(1), Policy::Every(2)] {
        let schedule = gpipe(4, MICRO_BATCHES).expect("a size");
        let [(first, bytes), (last, expected)] =
            [0, 1].map(|place| train(|| assembly(skip(place), 4, schedule.clone(), policy)));
        assert_eq!(first, last, "{policy}");
        let [counted, predicted] = &expected;
        assert_eq!(counted, predicted, "{policy}");
        assert_eq!(bytes, expected, "{policy}");
    }
}
