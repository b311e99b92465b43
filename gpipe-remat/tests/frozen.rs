//! Frozen parameters in a pipeline: no bytes but their values, no update, no share in the gradient
//! norm, no backward pass of the first layers if they have no others, and the gradients of all others as if nothing
//! was frozen.

mod common;
#[path = "common/ways.rs"]
mod ways;

use std::collections::BTreeMap;

use common::{Model, Run};
use gpipe_layers::layers::{Layout, Linear};
use gpipe_layers::{
    Cost, Flow, Layer, Loss, Optimizer, Param, PassContext, Pending, Saved, Sgd, freeze,
};
use gpipe_remat::{
    Assembled, Assembly, Error, ModelCosts, ParameterBytes, Policy, RematPlan, Times, Trainer,
    apply_update, copy_owned, gradient_norm, merge_ties, micro_batches, predict_memory, share_ties,
    simulator_costs,
};
use gpipe_sched::{Action, Op, simulate};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};
use ways::{Outcome, Way};

type Bits = BTreeMap<String, Vec<u32>>;

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.to_f32s().expect("floats");
    values.iter().map(|x| x.to_bits()).collect()
}

/// The values of all owners, and the gradients of all that have one.
fn read(assembled: &mut Assembled) -> (Bits, Bits) {
    let read = assembled.pipeline.gather(|_, stage| {
        let (mut values, mut gradients) = (Bits::new(), Bits::new());
        stage.params(|param| {
            assert_eq!(param.grad.is_none(), param.frozen);
            if !param.tied {
                values.insert(param.name.clone(), bits(param.value().expect("made")));
                if let Some(grad) = &param.grad {
                    gradients.insert(param.name.clone(), bits(grad));
                }
            }
        });
        Ok::<_, Error>((values, gradients))
    });
    let (values, gradients): (Vec<Bits>, Vec<Bits>) = read.expect("parameters").into_iter().unzip();
    let merge = |all: Vec<Bits>| all.into_iter().flatten().collect();
    (merge(values), merge(gradients))
}

/// One step; the norm, and what is read before and after the update.
fn step(run: &Run, frozen: fn(&str) -> bool) -> (f64, Bits, Bits, Bits) {
    let schedule = run.schedule();
    let mut layers = run.model.layers();
    for layer in &mut layers {
        freeze(layer.as_mut(), |param| frozen(&param.name));
    }
    let (costs, cut) = (run.costs(&layers), run.cut(layers.len()));
    let weights = ParameterBytes::new(&mut layers, Some(&run.optimizer));
    let costs = costs.with_frozen(&weights);
    let remat_plan =
        RematPlan::new(run.policy, &weights, &costs, &cut, &schedule).expect("a remat plan");
    let memory = predict_memory(&weights, &costs, &cut, &schedule, &remat_plan);
    let assembly = Assembly {
        layers,
        cut,
        schedule,
        remat_plan,
        devices: vec![DeviceId::Cpu; run.stages],
        loss: Loss::CrossEntropy,
        optimizer: Some(run.optimizer.clone()),
        seed: 7,
    };
    let mut assembled = assembly.build(&Host::new(1).unwrap()).expect("valid");
    let (before, _) = read(&mut assembled);
    let pipeline = &mut assembled.pipeline;
    pipeline.step(run.items(0)).expect("a step");
    merge_ties(pipeline).expect("ties");
    let norm = gradient_norm(pipeline).expect("a norm");
    apply_update(pipeline, &run.optimizer, 0.01, 0, 1.0).expect("an update");
    share_ties(pipeline).expect("ties");
    for (device, memory) in assembled.devices.iter().zip(&memory) {
        assert_eq!(device.peak_bytes(), memory.peak(), "{run:?}");
        assert_eq!(device.live_bytes(), memory.fixed(), "{run:?}");
    }
    let (after, gradients) = read(&mut assembled);
    (norm, before, after, gradients)
}

fn squares(gradients: &Bits) -> f64 {
    let elements = gradients.values().flatten();
    let square = |&bits: &u32| f64::from(f32::from_bits(bits)).powi(2);
    elements.map(square).sum()
}

#[test]
fn what_is_frozen_costs_its_value_and_stays() {
    let frozen: [fn(&str) -> bool; 5] = [
        |name| name.contains(".h.1."),
        |name| name.contains("wte") || name.contains("wpe"),
        |name| name.ends_with(".bias"),
        |name| !name.contains("ln_f"),
        |_| true,
    ];
    for tied in [false, true] {
        for (stages, policy) in [(1, Policy::Keep), (3, Policy::Stage), (3, Policy::Every(2))] {
            let model = Model {
                blocks: 3,
                tied,
                dropout: 0.1,
            };
            let run = Run {
                stages,
                policy,
                ..Run::new(model, 8, 4)
            };
            let (_, _, trained, all) = step(&run, |_| false);
            for frozen in frozen {
                let (norm, before, after, gradients) = step(&run, frozen);
                for (name, gradient) in &all {
                    assert_eq!(frozen(name), !gradients.contains_key(name), "{name}");
                    let expected = match frozen(name) {
                        true => &before[name],
                        false => {
                            assert_eq!(gradient, &gradients[name], "{name}");
                            &trained[name]
                        }
                    };
                    assert_eq!(expected, &after[name], "{name}");
                }
                let expected = squares(&gradients).sqrt();
                assert!(norm.is_sign_positive(), "{norm}");
                assert!(
                    (norm - expected).abs() <= 1e-6 * expected,
                    "{norm} {expected}"
                );
            }
        }
    }
}

/// A layer whose backward pass fails.
struct ForwardOnly(Linear);

impl Layer for ForwardOnly {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn cost(&self, inputs: &[Flow]) -> gpipe_layers::Result<Cost> {
        self.0.cost(inputs)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> gpipe_layers::Result<(Tensors, Saved)> {
        self.0.forward(cx, x)
    }

    fn input_grad(&self, _: Saved, _: Tensors) -> gpipe_layers::Result<(Tensors, Pending)> {
        Err(gpipe_layers::Error::Config(format!(
            "a backward pass of {}",
            self.name()
        )))
    }

    fn weight_grad(&mut self, pending: Pending) -> gpipe_layers::Result<()> {
        self.0.weight_grad(pending)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.0.params(visit);
    }
}

const SAMPLES: usize = 11;
const WIDE: usize = 8;
/// Layers of the model below, and how many of them are frozen.
const LAYERS: usize = 8;
const FROZEN: usize = 5;
const PARTS: usize = 4;

/// Linear layers, the first of which are frozen and cannot pass gradients back.
fn prefixed() -> Vec<Box<dyn Layer>> {
    let layer = |i: usize| {
        let linear = Linear::new(format!("linear{i}"), WIDE, WIDE, Layout::OutIn);
        let mut layer: Box<dyn Layer> = match i < FROZEN {
            true => Box::new(ForwardOnly(linear)),
            false => Box::new(linear),
        };
        freeze(layer.as_mut(), |_| i < FROZEN);
        layer
    };
    (0..LAYERS).map(layer).collect()
}

fn wide(samples: usize) -> Vec<Flow> {
    vec![Flow::f32([samples, WIDE])]
}

/// Two steps with this many layers before the pipeline, in three groups: the bits of losses and parameters, the
/// counted and the predicted peaks of the stages, and the bytes of activations of a stage without backward pass, which
/// takes no time for it.
fn prefixed_run(way: Way, before: usize) -> (Outcome, Option<u64>) {
    let optimizer = Optimizer::from(Sgd::default());
    let groups = 3;
    let builder = || {
        Assembly::builder(prefixed())
            .batch(SAMPLES, wide)
            .with_schedule(way.schedule(PARTS))
            .stages(way.stages)
            .policy(way.policy)
            .groups(groups)
            .before(before)
            .loss(Loss::SquaredError)
            .optimizer(&optimizer)
    };
    let host = Host::new(way.threads).expect("threads");
    let assembled = builder().build(&host).expect("an assembly");
    let mut trainer = Trainer::new(assembled, optimizer.clone(), |_| 0.01);
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let tensor = |factor: usize| {
        let value = |i: usize| ((i * factor + 3) % 17) as f32 / 8.0 - 1.0;
        let values: Vec<f32> = (0..SAMPLES * WIDE).map(value).collect();
        Tensor::from_f32(&cpu, [SAMPLES, WIDE], values).expect("small")
    };
    let mut bits = Vec::new();
    for _ in 0..2 {
        let step = trainer.step(&[tensor(5)], &tensor(7)).expect("a step");
        bits.push(step.loss.to_bits());
    }
    let run = trainer.run();
    let counted = run.devices.iter().map(|device| device.peak_bytes());
    let counted = counted.collect();
    for param in copy_owned(&mut run.pipeline, &run.transit).expect("room") {
        let values = param.value.to_f32s().expect("floats");
        bits.extend(values.iter().map(|value| u64::from(value.to_bits())));
    }
    let mut plan = builder().plan(1).expect("a plan");
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
    let ranges = micro_batches(SAMPLES, PARTS).expect("a size");
    let costs = ModelCosts::new(&plan.layers, &ranges, wide)
        .and_then(|costs| costs.with_groups(groups, &bytes))
        .and_then(|costs| costs.with_before(before, &plan.layers, wide))
        .expect("a model");
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    let times = Times::of_flops(&costs, 1e9);
    let costs = simulator_costs(&costs, &times, &plan.cut, &plan.schedule, &plan.remat_plan);
    let timeline = simulate(&plan.schedule, &costs[0]).expect("a timeline");
    let frozen = |stage: usize| plan.cut[stage].end <= FROZEN;
    for span in timeline.spans() {
        let Action { stage, op, .. } = span.action;
        if frozen(stage) && op != Op::Forward {
            assert_eq!(span.start, span.end, "{way:?}: {span:?}");
        }
    }
    let outcome = Outcome {
        bits,
        counted,
        predicted: memory.iter().map(|memory| memory.peak()).collect(),
    };
    let of_frozen = (0..way.stages).find(|&stage| frozen(stage));
    (outcome, of_frozen.map(|stage| memory[stage].activations))
}

#[test]
fn first_layers_that_are_frozen_have_no_backward_pass() {
    for before in [0, 2, FROZEN, FROZEN + 1] {
        let (wanted, _) = prefixed_run(Way::ONE, before);
        for way in Way::pairs() {
            if way.stages + before > LAYERS {
                continue;
            }
            let (got, of_frozen) = prefixed_run(way, before);
            assert!(got.bits == wanted.bits, "{before} before, {way:?}");
            // A weight gradient of its own may hold the rows of a whole group, which a prediction does not count.
            if before == 0 || ![2, 5].contains(&way.schedule) {
                assert_eq!(got.counted, got.predicted, "{before} before, {way:?}");
            }
            // Of the largest micro-batch the input and the output of a layer, whatever is in flight.
            if let (0, Some(bytes)) = (before, of_frozen) {
                let rows = SAMPLES.div_ceil(PARTS);
                assert_eq!(
                    bytes,
                    (2 * rows * WIDE * size_of::<f32>()) as u64,
                    "{way:?}"
                );
            }
        }
    }
}
