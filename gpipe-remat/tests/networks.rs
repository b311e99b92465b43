//! Networks for images: the bits of one stage and the predicted bytes at any number of stages, under any schedule and
//! policy, on any number of threads; dropout and the statistics of batch normalization included.

use std::ops::Range;
use std::sync::Mutex;

use gpipe_layers::models::{ImageConfig, Network, image};
use gpipe_layers::{
    Cost, Error, Flow, Layer, Loss, Optimizer, Param, PassContext, Pending, Saved, Sgd,
};
use gpipe_remat::{
    Assembly, AssemblyBuilder, ModelCosts, ParameterBytes, Policy, Trainer, copy_owned,
    micro_batches, predict_memory,
};
use gpipe_sched::{Schedule, gpipe, interleaved, looped_bfs, one_f_one_b, zb_h1, zb_v};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors, ops};

const SAMPLES: usize = 5;
const MICRO_BATCHES: usize = 2;
const CHANNELS: usize = 3;
const CLASSES: usize = 4;

/// How a network is trained: 8 · 6 · 4 · 3 ways.
#[derive(Clone, Copy, Debug)]
struct Way {
    stages: usize,
    schedule: usize,
    policy: Policy,
    threads: usize,
}

const STAGES: usize = 8;
const SCHEDULES: usize = 6;
const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(2),
];
const THREADS: usize = 3;

impl Way {
    const ONE: Self = Self {
        stages: 1,
        schedule: 0,
        policy: Policy::Keep,
        threads: 1,
    };

    /// Every way.
    fn all() -> Vec<Self> {
        let count = STAGES * SCHEDULES * POLICIES.len() * THREADS;
        let way = |i: usize| Self {
            stages: i % STAGES + 1,
            schedule: i / STAGES % SCHEDULES,
            policy: POLICIES[i / (STAGES * SCHEDULES) % POLICIES.len()],
            threads: i / (STAGES * SCHEDULES * POLICIES.len()) + 1,
        };
        (0..count).map(way).collect()
    }

    /// Every number of stages with every schedule; every policy and number of threads with every one of both.
    fn pairs() -> Vec<Self> {
        let all = (0..STAGES).flat_map(|k| (0..SCHEDULES).map(move |s| (k, s)));
        let way = |(k, s): (usize, usize)| Self {
            stages: k + 1,
            schedule: s,
            policy: POLICIES[(k + s) % POLICIES.len()],
            threads: (2 * k + s) % THREADS + 1,
        };
        all.map(way).collect()
    }

    /// Its schedule; 1F1B where it takes another number of stages.
    fn schedule(self) -> Schedule {
        let (stages, half) = (self.stages, self.stages / 2);
        let made = match self.schedule {
            0 => gpipe(stages, MICRO_BATCHES),
            2 => zb_h1(stages, MICRO_BATCHES),
            3 if stages % 2 == 0 => interleaved(half, 2, MICRO_BATCHES),
            4 if stages % 2 == 0 => looped_bfs(half, 2, MICRO_BATCHES),
            5 if stages % 2 == 0 => zb_v(half, MICRO_BATCHES),
            _ => one_f_one_b(stages, MICRO_BATCHES),
        };
        made.expect("a valid size")
    }
}

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

    fn builder(&self, way: Way) -> AssemblyBuilder {
        let size = self.size;
        let loss = match self.network.learns_masks() {
            true => Loss::BinaryCrossEntropy,
            false => Loss::CrossEntropy,
        };
        Assembly::builder(self.layers())
            .batch(SAMPLES, input(size))
            .stages(way.stages)
            .with_schedule(way.schedule())
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
    fn train(&self, way: Way) -> (Vec<u64>, [Vec<u64>; 2]) {
        let host = Host::new(way.threads).expect("threads");
        let cpu = host.device(DeviceId::Cpu).expect("a processor");
        let shape = [SAMPLES, self.size, self.size, CHANNELS];
        let value = |i: usize| ((i * 7 + i * i % 13) % 29) as f32 / 14.0 - 1.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        let x = Tensor::from_f32(&cpu, shape, values).expect("a value each");
        let targets = self.targets(&cpu);
        let optimizer = Optimizer::from(Sgd::default());
        let assembled = self.builder(way).optimizer(&optimizer).build(&host);
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

        let plan = self.builder(way).optimizer(&optimizer).plan(way.threads);
        let mut plan = plan.expect("a plan");
        let ranges = micro_batches(SAMPLES, MICRO_BATCHES).expect("a size");
        let costs = ModelCosts::new(&plan.layers, &ranges, input(self.size)).expect("a model");
        let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
        let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
        let predicted = memory.iter().map(|memory| memory.peak()).collect();
        (bits, [counted, predicted])
    }

    /// Trains in each of the ways that the exam or a test takes, and compares with one stage.
    fn every_way(&self, small: usize) {
        let ways = match std::env::var_os("GPIPE_EXAM") {
            Some(_) => Way::all(),
            None => Way::pairs().into_iter().step_by(small).collect(),
        };
        let (wanted, _) = self.train(Way::ONE);
        for way in &ways {
            let (got, [counted, predicted]) = self.train(*way);
            assert!(got == wanted, "{} {way:?}", self.network);
            assert_eq!(counted, predicted, "{} {way:?}", self.network);
        }
        println!("exam N4 {0}/{0}", ways.len());
    }
}

fn input(size: usize) -> impl Fn(usize) -> Vec<Flow> {
    move |samples| vec![Flow::f32([samples, size, size, CHANNELS])]
}

#[test]
fn a_convnet_trains_to_the_bits_of_one_stage() {
    Case::new("convnet:4,6,6", 12).every_way(1);
}

/// The sizes of its images are odd on some levels, where they grow to those of the skips.
#[test]
fn a_unet_trains_to_the_bits_of_one_stage() {
    Case::new("unet:1,2", 70).every_way(1);
}

#[test]
fn a_resnet_trains_to_the_bits_of_one_stage() {
    Case::new("resnet18", 32).every_way(5);
}

#[test]
fn an_amoebanet_trains_to_the_bits_of_one_stage() {
    Case::new("amoebanetd:3,8", 32).every_way(2);
}

/// Changes its input by a millionth when a micro-batch is computed again.
#[derive(Default)]
struct Faulty {
    /// Step and samples of each pass.
    seen: Mutex<Vec<(u64, Range<u64>)>>,
}

impl Layer for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost, Error> {
        Ok(Cost::new(inputs.to_vec()))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved), Error> {
        let (mut seen, pass) = (
            self.seen.lock().expect("no panic"),
            (cx.step, cx.samples.clone()),
        );
        let factor = if seen.contains(&pass) {
            1.0 + 1e-6
        } else {
            1.0
        };
        seen.push(pass);
        let y = ops::scale(&x[0], factor).map_err(Error::within("faulty"))?;
        Ok((Tensors::from_iter([y]), Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending), Error> {
        Ok((dy, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending, Error> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<(), Error> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

#[test]
fn teeth_a_layer_that_is_not_the_same_again_is_seen() {
    let mut case = Case::new("convnet:4,6,6", 12);
    case.change = |mut layers| {
        layers.insert(2, Box::new(Faulty::default()));
        layers
    };
    let (wanted, _) = case.train(Way::ONE);
    let (got, _) = case.train(Way {
        policy: Policy::Stage,
        ..Way::ONE
    });
    assert!(got != wanted, "the bits are the same");
    println!("exam N4 teeth 1/1");
}
