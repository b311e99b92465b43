//! Networks with skip connections, and a training run of one that gives everything that can be compared.

use gpipe_layers::layers::{
    Activation, Add, At, Concat, Dropout, Embedding, Fork, Function, Graph, LayerNorm, Layout,
    Linear, Permute, Sequential, StopGradient,
};
use gpipe_layers::{Flow, Gelu, Layer, Loss, Optimizer, Sgd, Value, freeze};
use gpipe_partition::CutRule;
use gpipe_remat::{
    Assembly, AssemblyBuilder, Bytes, ModelCosts, ParameterBytes, Policy, RematPlan, Result,
    Trainer, copy_owned, micro_batches, predict_memory,
};
use gpipe_sched::Schedule;
use gpipe_tensor::{DeviceId, Host, Tensor};

pub const WIDTH: usize = 6;
/// Uneven: micro-batches of three samples and of two.
pub const SAMPLES: usize = 11;
pub const MICRO_BATCHES: usize = 4;
/// Values of the indices.
const VOCABULARY: usize = 5;
/// Most tensors in a flow, and the widest.
const TENSORS: usize = 5;
const WIDEST: usize = 20;

pub type Layers = Vec<Box<dyn Layer>>;

pub fn linear(name: impl Into<String>, from: usize, to: usize) -> Linear {
    Linear::new(name, from, to, Layout::OutIn)
}

/// A tensor of a flow.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Floats of this width.
    Floats(usize),
    Indices,
}

/// A network of these choices: from floats and indices, through a flow of up to [`TENSORS`] tensors, to floats.
pub fn network(choices: &[(u8, u8)]) -> Layers {
    let mut layers: Layers = vec![Box::new(linear("first", WIDTH, WIDTH))];
    let mut flow = vec![Kind::Floats(WIDTH), Kind::Indices];
    for (i, &(kind, at)) in choices.iter().enumerate() {
        let at = usize::from(at);
        layers.extend(layer(kind, at, &mut flow, i));
    }
    layers.push(Box::new(end(&flow)));
    layers.push(Box::new(linear("last", WIDTH, WIDTH)));
    layers
}

/// A layer of this kind on the flow, if there is one.
fn layer(kind: u8, at: usize, flow: &mut Vec<Kind>, i: usize) -> Option<Box<dyn Layer>> {
    let place = at % flow.len();
    let name = |what: &str| format!("{what}{i}");
    match (kind % 10, flow[0], flow.get(1).copied()) {
        (0 | 1, ..) if flow.len() < TENSORS => {
            flow.insert(0, flow[0]);
            Some(Box::new(Fork::new(name("fork"))))
        }
        (2, Kind::Floats(_), Some(second)) if flow[0] == second => {
            flow.remove(0);
            Some(Box::new(Add::new(name("add"))))
        }
        (2 | 3, Kind::Floats(a), Some(Kind::Floats(b))) if a + b <= WIDEST => {
            flow.splice(..2, [Kind::Floats(a + b)]);
            Some(Box::new(Concat::new(name("concat"), 2)))
        }
        (2..=5, ..) if flow.len() > 1 => {
            let order = (0..flow.len()).map(|k| (k + 1 + place) % flow.len());
            let order: Vec<usize> = order.collect();
            *flow = order.iter().map(|&place| flow[place]).collect();
            Some(Box::new(Permute::new(name("permute"), order)))
        }
        // Drops a tensor and doubles another; floats remain.
        (6, ..) if flow.len() > 2 => {
            let mut places: Vec<usize> = (0..flow.len()).filter(|&k| k != place).collect();
            places.push((place + 1) % flow.len());
            let floats = |&&k: &&usize| flow[k] != Kind::Indices;
            places.iter().find(floats)?;
            let select = Graph::select(name("select"), flow.len(), places.clone());
            *flow = places.into_iter().map(|place| flow[place]).collect();
            Some(Box::new(select))
        }
        (7, Kind::Floats(width), _) => {
            let inside = Sequential::new()
                .then(linear(name("a"), width, width))
                .then(Activation::new(name("gelu"), Function::Gelu(Gelu::Tanh)))
                .then(linear(name("b"), width, width));
            let shortcut = Sequential::new().then(linear(name("shortcut"), width, width));
            let shortcut = [shortcut, Sequential::new()].into_iter().nth(at % 2);
            let sides = flow.len() - 1;
            let shortcut = shortcut.unwrap_or_default();
            let residual = Graph::residual(name("residual"), sides, inside, shortcut);
            Some(Box::new(residual))
        }
        (kind, ..) => Some(match (kind % 4, flow[place]) {
            (_, Kind::Indices) => {
                flow[place] = Kind::Floats(WIDTH);
                let table = Embedding::new(name("table"), VOCABULARY, WIDTH, 0.5);
                Box::new(At::new([place], table))
            }
            (0, Kind::Floats(width)) => {
                let to = 4 + at % 5;
                flow[place] = Kind::Floats(to);
                Box::new(At::new([place], linear(name("linear"), width, to)))
            }
            (1, Kind::Floats(width)) => {
                Box::new(At::new([place], LayerNorm::new(name("norm"), width, 1e-5)))
            }
            (2, Kind::Floats(_)) => Box::new(At::new([place], StopGradient::new(name("stop")))),
            (_, Kind::Floats(_)) => {
                let dropout = Dropout::new(name("dropout"), 0.25).expect("a rate");
                Box::new(At::new([place], dropout))
            }
        }),
    }
}

/// The sum of all floats of a flow, each projected; indices are dropped.
fn end(flow: &[Kind]) -> Graph {
    let mut graph = Graph::new("end", flow.len());
    let mut sum: Option<Value> = None;
    for (place, &kind) in flow.iter().enumerate() {
        if let Kind::Floats(width) = kind {
            let x = graph.input(place);
            let y = graph.add(linear(format!("end.{place}"), width, WIDTH), [x]);
            sum = Some(match sum {
                None => y,
                Some(sum) => graph.add(Add::new(format!("end.add{place}")), [sum, y]),
            });
        }
    }
    graph.returning(sum)
}

fn input(samples: usize) -> Vec<Flow> {
    vec![Flow::f32([samples, WIDTH]), Flow::u32([samples])]
}

/// The same layers, of which the first `frozen` do not train.
pub fn with_frozen(mut layers: Layers, frozen: usize) -> Layers {
    for layer in layers.iter_mut().take(frozen) {
        freeze(layer.as_mut(), |_| true);
    }
    layers
}

/// How a network is trained.
#[derive(Clone)]
pub struct Run {
    pub schedule: Schedule,
    pub policy: Policy,
    /// Whether frozen first layers have a backward pass all the same, whose gradients nothing needs.
    pub whole_backward: bool,
}

impl Run {
    /// A pipeline whose cut is the same under every policy.
    fn builder(&self, layers: Layers) -> Result<AssemblyBuilder> {
        let samples = micro_batches(SAMPLES, MICRO_BATCHES)?;
        let flops = ModelCosts::new(&layers, &samples, input)?.flops();
        let stages = self.schedule.stages();
        let cut = gpipe_partition::balance(&flops, stages)?;
        Ok(Assembly::builder(layers)
            .batch(SAMPLES, input)
            .stages(stages)
            .cut(CutRule::Sizes(cut.sizes()))
            .with_schedule(self.schedule.clone())
            .policy(self.policy)
            .loss(Loss::SquaredError))
    }

    /// The assembly and the predicted peak of each stage.
    fn plan(&self, layers: Layers) -> Result<(Assembly, Vec<u64>)> {
        let optimizer = Optimizer::from(Sgd::default());
        let mut plan = self.builder(layers)?.optimizer(&optimizer).plan(2)?;
        let ranges = micro_batches(SAMPLES, MICRO_BATCHES)?;
        let costs = ModelCosts::new(&plan.layers, &ranges, input)?;
        let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
        if self.whole_backward {
            plan.remat_plan =
                RematPlan::new(self.policy, &bytes, &costs, &plan.cut, &plan.schedule)?;
        }
        let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
        let memory = memory.iter().map(|memory| memory.peak()).collect();
        Ok((plan, memory))
    }

    /// The predicted peak of each stage.
    pub fn predicted(&self, layers: Layers) -> Result<Vec<u64>> {
        Ok(self.plan(layers)?.1)
    }

    /// The same with as many bytes as whole stages need that are computed again.
    pub fn within_a_budget(self, layers: Layers) -> Result<Self> {
        let stages = Self {
            policy: Policy::Stage,
            ..self
        };
        let most = stages.predicted(layers)?.into_iter().max();
        Ok(Self {
            policy: Policy::Budget(Bytes(most.unwrap_or(0))),
            ..stages
        })
    }

    /// The losses of two steps and then the values of all parameters, as bits, and the counted peak of each stage.
    pub fn train(&self, layers: Layers) -> Result<(Vec<u64>, Vec<u64>)> {
        let host = Host::new(2)?;
        let cpu = host.device(DeviceId::Cpu)?;
        let tensor = |factor: usize| {
            let value = |i: usize| ((i * factor + 3) % 17) as f32 / 8.0 - 1.0;
            let values: Vec<f32> = (0..SAMPLES * WIDTH).map(value).collect();
            Tensor::from_f32(&cpu, [SAMPLES, WIDTH], values)
        };
        let indices = (0..SAMPLES).map(|i| (i * 3 % VOCABULARY) as u32).collect();
        let inputs = [tensor(5)?, Tensor::from_u32(&cpu, [SAMPLES], indices)?];
        let optimizer = Optimizer::from(Sgd::default());
        let assembled = self.plan(layers)?.0.build(&host);
        let assembled = assembled.expect("an assembly");
        let mut trainer = Trainer::new(assembled, optimizer, |_| 0.01);
        let mut bits = Vec::new();
        for _ in 0..2 {
            bits.push(trainer.step(&inputs, &tensor(7)?)?.loss.to_bits());
        }
        let run = trainer.run();
        assert_eq!(run.transit.live_bytes(), 0, "in transit after a step");
        let devices = run.devices.iter();
        let counted = devices.map(|device| device.peak_bytes()).collect();
        for param in copy_owned(&mut run.pipeline, &run.transit)? {
            let values = param.value.to_f32s()?;
            bits.extend(values.iter().map(|value| u64::from(value.to_bits())));
        }
        Ok((bits, counted))
    }
}
