//! Trains a small model under any configuration and hands back every bit of the outcome.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

mod host;

use std::collections::BTreeMap;

use gpipe_layers::{AdamW, Decay, Flow, Layer, Loss, Optimizer, clip_factor, models};
use gpipe_remat::{
    Assembled, Assembly, Bytes, Error, ModelCosts, ParameterBytes, Policy, RematPlan, Target,
    apply_update, gradient_norm, items_of_replica, merge_ties, micro_batches, share_ties,
    sum_replicas,
};
use gpipe_sched::{Groups, Item, MicroBatch, Op, Schedule, Timeline, gpipe, one_f_one_b};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors, ops};

use host::host;

/// The two schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Gpipe,
    OneFOneB,
}

impl Order {
    pub fn schedule(self, stages: usize, micro_batches: usize) -> Schedule {
        match self {
            Self::Gpipe => gpipe(stages, micro_batches),
            Self::OneFOneB => one_f_one_b(stages, micro_batches),
        }
        .expect("a valid size")
    }
}

/// What a model is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub blocks: usize,
    pub tied: bool,
    pub dropout: f32,
}

pub const VOCAB: usize = 13;
pub const CONTEXT: usize = 6;
pub const WIDTH: usize = 12;

impl Model {
    pub fn layers(&self) -> Vec<Box<dyn Layer>> {
        models::gpt(&models::GptConfig {
            vocab: VOCAB,
            context: CONTEXT,
            width: WIDTH,
            blocks: self.blocks,
            heads: 3,
            tied: self.tied,
            dropout: self.dropout,
            ..models::GptConfig::default()
        })
        .expect("a valid model")
    }
}

/// A training run.
#[derive(Clone, Debug)]
pub struct Run {
    pub model: Model,
    pub stages: usize,
    pub micro_batches: usize,
    pub groups: usize,
    /// The replica, and their number.
    pub replica: [usize; 2],
    /// Whether replicas divide the optimizer states among them.
    pub sharded: bool,
    pub order: Order,
    pub policy: Policy,
    pub threads: usize,
    pub batch: usize,
    /// Every n-th target is ignored; 0 ignores none, 1 ignores all.
    pub ignore: usize,
    pub optimizer: Optimizer,
    pub steps: u64,
}

impl Run {
    pub fn new(model: Model, batch: usize, micro_batches: usize) -> Self {
        Self {
            model,
            stages: 1,
            micro_batches,
            groups: 1,
            replica: [0, 1],
            sharded: false,
            order: Order::Gpipe,
            policy: Policy::Keep,
            threads: 1,
            batch,
            ignore: 0,
            optimizer: Optimizer::from(AdamW {
                beta2: 0.95,
                weight_decay: 0.1,
                decay: Decay::Matrices,
                ..AdamW::default()
            }),
            steps: 3,
        }
    }

    /// The layers of each stage: as even as can be.
    pub fn cut(&self, layers: usize) -> Vec<std::ops::Range<usize>> {
        micro_batches(layers, self.stages).expect("at least one layer a stage")
    }

    pub fn schedule(&self) -> Schedule {
        self.order.schedule(self.stages, self.micro_batches)
    }

    /// What each layer costs.
    pub fn costs(&self, layers: &[Box<dyn Layer>]) -> ModelCosts {
        let samples = micro_batches(self.batch, self.micro_batches).expect("a valid size");
        ModelCosts::new(layers, &samples, |n| vec![Flow::u32([n, CONTEXT])]).expect("a model")
    }

    /// What is kept of each micro-batch.
    pub fn remat_plan(&self, layers: &mut [Box<dyn Layer>], schedule: &Schedule) -> RematPlan {
        self.try_remat_plan(self.policy, layers, schedule)
            .expect("a remat plan")
    }

    fn try_remat_plan(
        &self,
        policy: Policy,
        layers: &mut [Box<dyn Layer>],
        schedule: &Schedule,
    ) -> Result<RematPlan, Error> {
        let (costs, cut) = (self.costs(layers), self.cut(layers.len()));
        let weights = ParameterBytes::new(layers, Some(&self.optimizer));
        let [replica, replicas] = self.replica;
        let costs = costs.with_groups(self.groups, &weights)?;
        let costs = costs.on_replica(replica, replicas)?;
        let weights = match self.sharded {
            true => weights.sharded(replica, replicas),
            false => weights,
        };
        RematPlan::new(policy, &weights, &costs, &cut, schedule)
    }

    /// Two budgets: the least that every stage fits, and half as much again. None where a stage takes
    /// some gradients whole and others in two, or computes anything ahead: a budget does not know
    /// what that costs.
    pub fn budgets(&self, schedule: &Schedule) -> Vec<Policy> {
        let has = |op| schedule.lanes().iter().flatten().any(|a| a.op == op);
        if has(Op::Recompute) || has(Op::Backward) && has(Op::InputGrad) {
            return Vec::new();
        }
        let mut layers = self.model.layers();
        let mut least = Bytes(1);
        while let Err(error) = self.try_remat_plan(Policy::Budget(least), &mut layers, schedule) {
            match error {
                Error::Budget { needed, .. } if needed > least => least = needed,
                error => panic!("{error}"),
            }
        }
        vec![
            Policy::Budget(least),
            Policy::Budget(Bytes(least.0 + least.0 / 2)),
        ]
    }

    pub fn assemble(&self) -> Assembled {
        self.assemble_with(self.schedule())
    }

    pub fn assemble_with(&self, schedule: Schedule) -> Assembled {
        self.assembly(schedule)
            .build(&host(self.threads))
            .expect("a valid assembly")
    }

    pub fn assembly(&self, schedule: Schedule) -> Assembly {
        let mut layers = self.model.layers();
        Assembly {
            cut: self.cut(layers.len()),
            remat_plan: self.remat_plan(&mut layers, &schedule),
            layers,
            schedule,
            devices: vec![DeviceId::Cpu; self.stages],
            loss: Loss::CrossEntropy,
            optimizer: Some(self.optimizer.clone()),
            seed: 7,
        }
    }

    /// The batch of a step, cut into micro-batches: a function of the step alone.
    pub fn items(&self, step: u64) -> Vec<Item<Tensors, Target>> {
        let device = Host::new(1)
            .and_then(|host| host.device(DeviceId::Cpu))
            .expect("a CPU");
        let token = |i: usize| {
            ((i as u64 * 7 + step * 31 + (i as u64 * i as u64) % 5) % VOCAB as u64) as u32
        };
        let target = |i: usize| match self.ignore {
            0 => token(i + 1),
            n if i.is_multiple_of(n) => ops::IGNORE,
            _ => token(i + 1),
        };
        let divisor = (0..self.batch * CONTEXT)
            .filter(|&i| target(i) != ops::IGNORE)
            .count() as f64;
        let ranges = micro_batches(self.batch, self.micro_batches).expect("a valid size");
        let item = |(index, rows): (usize, std::ops::Range<usize>)| {
            let elements = || rows.start * CONTEXT..rows.end * CONTEXT;
            let tensor = |values: Vec<u32>| {
                Tensor::from_u32(&device, [rows.len(), CONTEXT], values).expect("a small tensor")
            };
            Item {
                micro_batch: MicroBatch::new(index, rows.start as u64..rows.end as u64, step, true),
                input: Tensors::from_iter([tensor(elements().map(token).collect())]),
                target: Target {
                    values: tensor(elements().map(target).collect()),
                    divisor,
                },
            }
        };
        let items = ranges.into_iter().enumerate().map(item).collect();
        items_of_replica(items, self.groups_of_replica())
    }

    /// The groups of the replica.
    pub fn groups_of_replica(&self) -> Groups {
        let [replica, replicas] = self.replica;
        let groups = Groups::new(self.micro_batches, self.groups);
        groups
            .and_then(|groups| groups.on_replica(replica, replicas))
            .expect("replicas divide the groups")
    }

    pub fn train(&self) -> Outcome {
        let mut assembled = self.assemble();
        let mut outcome = Outcome::default();
        for step in 0..self.steps {
            let items = self.items(step);
            outcome.step(&mut assembled, items, self, step, true);
        }
        outcome.read(&mut assembled);
        outcome
    }
}

/// Every bit of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub losses: Vec<u64>,
    pub norms: Vec<u64>,
    pub gradients: BTreeMap<String, Vec<u32>>,
    pub values: BTreeMap<String, Vec<u32>>,
}

impl Outcome {
    /// One whole training step; `merge` says whether ties are merged as they should be.
    pub fn step(
        &mut self,
        assembled: &mut Assembled,
        items: Vec<Item<Tensors, Target>>,
        run: &Run,
        step: u64,
        merge: bool,
    ) -> Timeline {
        let pipeline = &mut assembled.pipeline;
        let outcome = pipeline.step(items).expect("a step");
        let loss = assembled.groups.sum(&outcome.losses);
        sum_replicas(pipeline).expect("a sum");
        if merge {
            merge_ties(pipeline).expect("ties");
        }
        let norm = gradient_norm(pipeline).expect("a norm");
        apply_update(pipeline, &run.optimizer, 0.01, step, clip_factor(norm, 0.5))
            .expect("an update");
        share_ties(pipeline).expect("ties");
        self.losses.push(loss.to_bits());
        self.norms.push(norm.to_bits());
        outcome.timeline
    }

    /// Reads the parameters, and the gradients of the last step, of every place.
    pub fn read(&mut self, assembled: &mut Assembled) {
        let bits = |tensor: &Tensor| {
            tensor
                .f32s()
                .expect("floats")
                .iter()
                .map(|x| x.to_bits())
                .collect()
        };
        let places = assembled
            .pipeline
            .gather(move |_, stage| {
                let mut places = Vec::new();
                stage.params(|param| {
                    let name = if param.tied {
                        format!("{} (tied)", param.name)
                    } else {
                        param.name.clone()
                    };
                    let value: Vec<u32> = bits(param.value().expect("made"));
                    let grad: Vec<u32> = bits(param.grad().expect("made"));
                    places.push((name, value, grad));
                });
                Ok::<_, Error>(places)
            })
            .expect("parameters");
        for (name, value, grad) in places.into_iter().flatten() {
            self.gradients.insert(name.clone(), grad);
            self.values.insert(name, value);
        }
    }
}
