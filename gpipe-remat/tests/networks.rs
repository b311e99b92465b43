//! Networks for images: the bits of one stage and the predicted bytes at any number of stages, under any schedule and
//! policy, on any number of threads; dropout and the statistics of batch normalization included.

#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/host.rs"]
mod host;
#[path = "common/ways.rs"]
mod ways;

use faulty::Faulty;
use gpipe_layers::models::{ImageConfig, Network, image};
use gpipe_layers::{Flow, Layer, Loss, Optimizer, Sgd};
use gpipe_remat::{
    Assembly, AssemblyBuilder, Bytes, ModelCosts, ParameterBytes, Policy, Trainer, copy_owned,
    micro_batches, predict_memory,
};
use gpipe_tensor::{DeviceId, Tensor};
use host::host;
use ways::{Outcome, Way};

/// No number of micro-batches divides it.
const SAMPLES: usize = 7;
const CHANNELS: usize = 3;
const CLASSES: usize = 4;

type Layers = Vec<Box<dyn Layer>>;

/// A network on images of this size.
struct Case {
    network: Network,
    size: usize,
    /// Makes the list of layers another one: a planted fault.
    change: fn(Layers) -> Layers,
}

impl Case {
    fn new(network: &str, size: usize) -> Self {
        Self {
            network: network.parse().expect("a network"),
            size,
            change: |layers| layers,
        }
    }

    fn layers(&self) -> Layers {
        let masks = self.network.learns_masks();
        let layers = image(&ImageConfig {
            network: self.network.clone(),
            channels: CHANNELS,
            classes: if masks { 1 } else { CLASSES },
            dropout: 0.25,
        });
        (self.change)(layers.expect("a network"))
    }

    fn builder(&self, way: Way, micro_batches: usize) -> AssemblyBuilder {
        let size = self.size;
        let loss = match self.network.learns_masks() {
            true => Loss::BinaryCrossEntropy,
            false => Loss::CrossEntropy,
        };
        Assembly::builder(self.layers())
            .batch(SAMPLES, input(size))
            .stages(way.stages)
            .with_schedule(way.schedule(micro_batches))
            .policy(way.policy)
            .loss(loss)
            .seed(7)
    }

    fn targets(&self, device: &gpipe_tensor::Device) -> Tensor {
        let made = match self.network.learns_masks() {
            true => {
                let values = (0..SAMPLES * self.size * self.size).map(|i| (i * i % 3 % 2) as f32);
                let shape = [SAMPLES, self.size, self.size, 1];
                Tensor::from_f32(device, shape, values.collect::<Vec<_>>())
            }
            false => {
                let labels = (0..SAMPLES).map(|i| (i * 3 % CLASSES) as u32);
                Tensor::from_u32(device, [SAMPLES], labels.collect())
            }
        };
        made.expect("a small tensor")
    }

    /// Losses of two steps and then all parameters, as bits; counted bytes beside predicted ones.
    fn train(&self, way: Way, micro_batches: usize) -> Outcome {
        let host = host(way.threads);
        let cpu = host.device(DeviceId::Cpu).expect("a processor");
        let shape = [SAMPLES, self.size, self.size, CHANNELS];
        let value = |i: usize| ((i * 7 + i * i % 13) % 29) as f32 / 14.0 - 1.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        let x = Tensor::from_f32(&cpu, shape, values).expect("a value each");
        let targets = self.targets(&cpu);
        let optimizer = optimizer();
        let assembled = self
            .builder(way, micro_batches)
            .optimizer(&optimizer)
            .build(&host);
        let mut trainer =
            Trainer::new(assembled.expect("an assembly"), optimizer.clone(), |_| 0.01);
        let mut bits = Vec::new();
        for _ in 0..2 {
            let step = trainer.step(std::slice::from_ref(&x), &targets);
            bits.push(step.expect("a step").loss.to_bits());
        }
        let run = trainer.run();
        let counted = run.devices.iter().map(|device| device.peak_bytes());
        let counted = counted.collect();
        for param in copy_owned(&mut run.pipeline, &run.transit).expect("room") {
            let values = param.value.to_f32s().expect("floats");
            bits.extend(values.iter().map(|value| u64::from(value.to_bits())));
        }

        Outcome {
            bits,
            counted,
            predicted: self.predicted(way, micro_batches),
        }
    }

    /// The predicted peak of every device.
    fn predicted(&self, way: Way, count: usize) -> Vec<u64> {
        let optimizer = optimizer();
        let builder = self.builder(way, count).optimizer(&optimizer);
        let mut plan = builder.plan(way.threads).expect("a plan");
        let ranges = micro_batches(SAMPLES, count).expect("a size");
        let costs = ModelCosts::new(&plan.layers, &ranges, input(self.size)).expect("a model");
        let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
        let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
        memory.iter().map(|memory| memory.peak()).collect()
    }

    /// The way with a budget half-way between the least of the rules and everything, instead of `every:2`.
    fn with_budget(&self, way: Way, count: usize) -> Way {
        if !matches!(way.policy, Policy::Every(_)) {
            return way;
        }
        let most = |policy: Policy| {
            let peaks = self.predicted(Way { policy, ..way }, count);
            peaks.into_iter().max().unwrap_or(0)
        };
        let least = most(way.policy).min(most(Policy::Stage));
        let budget = least.midpoint(most(Policy::Keep).max(least));
        Way {
            policy: Policy::Budget(Bytes(budget)),
            ..way
        }
    }

    /// Trains in each of the ways that the exam or a test takes, and compares with one stage: in two micro-batches, and
    /// with budgets in three.
    fn every_way(&self, small: usize) {
        Way::compare("N4", small, |way| self.train(way, 2));
        Way::compare("N4", 2 * small + 1, |way| {
            self.train(self.with_budget(way, 3), 3)
        });
    }
}

fn optimizer() -> Optimizer {
    Optimizer::from(Sgd::default())
}

fn input(size: usize) -> impl Fn(usize) -> Vec<Flow> {
    move |samples| vec![Flow::f32([samples, size, size, CHANNELS])]
}

#[test]
fn a_convnet_trains_to_the_bits_of_one_stage() {
    Case::new("convnet:4,6,6", 12).every_way(1);
}

/// Its products are large enough for the kernels of large ones, whichever a processor has.
#[test]
fn a_wide_convnet_trains_to_the_bits_of_one_stage() {
    Case::new("convnet:16,192", 24).every_way(2);
}

/// The sizes of its images are odd on some levels, where they grow to those of the skips.
#[test]
fn a_unet_trains_to_the_bits_of_one_stage() {
    Case::new("unet:1,2", 70).every_way(5);
}

#[test]
fn a_resnet_trains_to_the_bits_of_one_stage() {
    Case::new("resnet18", 32).every_way(23);
}

#[test]
fn an_amoebanet_trains_to_the_bits_of_one_stage() {
    Case::new("amoebanetd:3,8", 32).every_way(2);
}

#[test]
fn teeth_a_layer_that_is_not_the_same_again_is_seen() {
    let mut case = Case::new("convnet:4,6,6", 12);
    case.change = |mut layers| {
        layers.insert(2, Box::new(Faulty::default()));
        layers
    };
    let wanted = case.train(Way::ONE, 2);
    let got = case.train(
        Way {
            policy: Policy::Stage,
            ..Way::ONE
        },
        2,
    );
    assert!(got.bits != wanted.bits, "the bits are the same");
    println!("exam N4 teeth 1/1");
}
