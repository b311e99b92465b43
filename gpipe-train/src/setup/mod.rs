//! The set-up of a run: layers, costs, cut, schedule and predictions. No memory for tensors is allocated
//! before [`Setup::assemble`].

mod cut_and_schedule;
mod cuts;
mod forecast;
mod info;
mod memory_check;
mod model;
mod plan_event;
mod save_check;
mod stage_table;
mod start;
#[cfg(test)]
mod tests;
mod weights;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpipe_hf::Weights;
use gpipe_layers::{CostModel, Layer, LearningRate, Optimizer, freeze};
use gpipe_partition::{Loads, Partition};
use gpipe_remat::{
    MessageBytes, ModelCosts, ParameterBytes, Rates, RematPlan, StageMemory, StagePrices, Times,
    simulator_costs,
};
use gpipe_report::MeasuredLink;
use gpipe_sched::{LinkCosts, Schedule, World};
use gpipe_tensor::DeviceId;

pub(crate) use cut_and_schedule::hides;
pub use cut_and_schedule::{check_stages, cut, micro_batches_of};
pub use cuts::{cuts, unit};
pub use forecast::Forecast;
pub(crate) use model::misfit;
pub use model::{input, layers, optimizer};
pub use plan_event::plan_event;

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::launch::check_alike;
use crate::{links, precision};

/// A configured run before it starts: layers, costs, cut, schedule and predicted memory.
#[non_exhaustive]
pub struct Setup {
    layers: Vec<Box<dyn Layer>>,
    /// The costs of the layers.
    pub costs: ModelCosts,
    /// The layers of each stage.
    pub partition: Partition,
    /// The cost of each stage under `pipeline.cost_model` ([`StagePrices`]).
    pub loads: Loads,
    /// The cost of any stage under `pipeline.cost_model`.
    prices: StagePrices,
    cost_model: CostModel,
    /// The order of actions on each worker.
    pub schedule: Schedule,
    /// The activations that each stage keeps and recomputes.
    pub table: RematPlan,
    /// Predicted bytes of each stage.
    pub memory: Vec<StageMemory>,
    /// Predicted bytes of messages of each rank of this replica; empty without other ranks and replicas.
    pub messages: Vec<MessageBytes>,
    /// The number of parameters; tied ones count once.
    pub parameters: u64,
    /// The number of parameters that are not frozen; tied ones count once.
    pub trained: u64,
    /// Bytes per parameter in training: value, gradient and optimizer state.
    pub parameter_bytes: [u64; 3],
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate as a function of the step, from 0.
    pub learning_rate: LearningRate,
    /// The device of each stage.
    pub devices: Vec<DeviceId>,
    /// The GPUs that workers share, where all are on GPUs.
    gpus: Option<usize>,
    threads: usize,
    /// Whether it is trained, and not for forward passes alone.
    trains: bool,
    /// Whether checkpoints are saved.
    saves: bool,
    /// Of the model, and of its adapters, where they come from files.
    weights: Vec<Weights>,
    /// What a user should know of them, in a line.
    pub(crate) warning: Option<String>,
    /// The folder of compiled CUDA kernels.
    kernel_cache: Option<PathBuf>,
    world: Option<Arc<World>>,
    /// Ranks of a replica.
    ranks: usize,
    /// The links between stages, for full micro-batches; free if there are none.
    links: Vec<LinkCosts>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("partition", &self.partition)
            .field("devices", &self.devices)
            .field("parameters", &self.parameters)
            .field("optimizer", &self.optimizer)
            .finish_non_exhaustive()
    }
}

impl Setup {
    /// Changes the parameters before they are made.
    #[cfg(test)]
    pub(crate) fn params(&mut self, visit: &mut dyn FnMut(&mut gpipe_layers::Param)) {
        self.layers.iter_mut().for_each(|layer| layer.params(visit));
    }

    /// Builds the set-up of a configuration.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::Input`] if model, stages, schedule and rematerialization do not fit
    /// together.
    pub fn new(config: &TrainConfig) -> Result<Self> {
        Self::over(config, None)
    }

    /// [`Setup::new`] over the ranks of a world, if there is one. Without, it is that of the last replica, which has the
    /// most micro-batches.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(config: &TrainConfig, world: Option<&Arc<World>>) -> Result<Self> {
        Self::over_for(config, world, true)
    }

    /// [`over`](Self::over), to train or for evaluations alone.
    fn over_for(config: &TrainConfig, world: Option<&Arc<World>>, trains: bool) -> Result<Self> {
        let replicas = config.pipeline.replicas.get();
        let replica = match world {
            Some(world) => world.rank() * replicas / world.ranks(),
            None => replicas - 1,
        };
        let mut setup = Self {
            world: world.cloned(),
            ranks: world.map_or(1, |world| world.ranks() / replicas),
            ..Self::build(config, None, replica, trains)?
        };
        setup.check_ranks(config)?;
        if setup.ranks > 1 || replicas > 1 {
            let device_of = setup.schedule.device_of().iter();
            let devices = setup.schedule.devices();
            let rank_of = device_of.map(|device| device * setup.ranks / devices);
            let rank_of: Vec<usize> = rank_of.collect();
            setup.messages = gpipe_remat::predict_messages(
                &mut setup.layers,
                Some(&setup.optimizer),
                &setup.costs,
                &setup.partition.ranges().collect::<Vec<_>>(),
                &setup.schedule,
                &setup.table,
                &rank_of,
            );
        }
        Ok(setup)
    }

    /// [`Setup::over`] for forward passes alone, by ranks that found the same model: of a run that trains meanwhile each may
    /// find another checkpoint. Every rank calls it.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Invalid`] for ranks with another model or configuration.
    pub fn forward_only_over(config: &TrainConfig, world: Option<&Arc<World>>) -> Result<Self> {
        if let Some(world) = world {
            check_alike(world, config)?;
        }
        Ok(Self::over_for(config, world, false)?.forward_only())
    }

    /// [`Setup::new`] with a given schedule instead of the configured one.
    pub(crate) fn with_schedule(
        config: &TrainConfig,
        given: Option<Schedule>,
        replica: usize,
    ) -> Result<Self> {
        Self::build(config, given, replica, true)
    }

    /// [`Self::with_schedule`], to train or for evaluations alone.
    fn build(
        config: &TrainConfig,
        given: Option<Schedule>,
        replica: usize,
        trains: bool,
    ) -> Result<Self> {
        let pipeline = &config.pipeline;
        let stages = pipeline.stages.get();
        let mut layers = layers(config)?;
        check_stages(pipeline, layers.len())?;
        // The schedule comes first: it limits the numbers that later lists depend on.
        let is_configured = given.is_none();
        let replicas = pipeline.replicas.get();
        let mut schedule = match given {
            Some(given) => given,
            None => {
                let micro_batches = micro_batches_of(pipeline, replica);
                pipeline.schedule.build(stages, micro_batches, None)?
            }
        };
        let workers = pipeline.devices.of_workers(schedule.devices());
        // Over several ranks the list is that of each.
        let device = |&worker: &usize| workers[worker % workers.len().max(1)];
        let devices = schedule.device_of().iter().map(device).collect();
        let gpus = pipeline.devices.gpus(schedule.devices());
        let batch = config.data.batch_size.get();
        let micro_batches = match replicas {
            1 => schedule.micro_batches(),
            _ => pipeline.micro_batches.get(),
        };
        let micro_batches =
            gpipe_remat::micro_batches(batch, micro_batches).map_err(Error::input)?;
        let optimizer = optimizer(config);
        let bytes = ParameterBytes::new(&mut layers, Some(&optimizer));
        let bytes = match pipeline.zero.get() {
            0 => bytes,
            _ => bytes.sharded(replica, replicas),
        };
        let costs = match trains {
            true => ModelCosts::new(&layers, &micro_batches, input(config)),
            false => ModelCosts::for_evaluation(&layers, &micro_batches, input(config)),
        };
        let costs = costs
            .and_then(|costs| {
                let costs = costs.with_frozen(&bytes);
                costs.with_groups(pipeline.groups.get(), &bytes)
            })
            .map_err(|error| misfit(config, &layers, &micro_batches, error))?;
        let before = pipeline.before.get();

        // Those of all replicas, which have one cut.
        let cost_model = *pipeline.cost_model;
        let policy = *pipeline.remat;
        let prices = StagePrices::new(
            &costs, &layers, cost_model, policy, &schedule, replicas, before,
        );
        let prices = prices.map_err(|error| match cost_model {
            CostModel::Lingvo => Error::invalid(format!("`pipeline.cost_model = lingvo`: {error}")),
            _ => Error::input(error),
        })?;
        let costs = costs.on_replica(replica, replicas).map_err(Error::input)?;
        let partition = cut_and_schedule::cut_behind(before, &pipeline.partition, &prices, stages)?;
        let behind = |before| costs.clone().with_before(before, &layers, input(config));
        let costs = match before {
            0 => costs,
            _ => behind(before).map_err(|error| {
                let fewer = (0..before).rev().find(|&fewer| behind(fewer).is_ok());
                let fewer = fewer.unwrap_or_default();
                Error::invalid(format!("{error}: use `pipeline.before = {fewer}`"))
            })?,
        };
        let loads = prices.loads(&partition).map_err(cut_and_schedule::uncut)?;

        let ranges: Vec<Range<usize>> = partition.ranges().collect();
        let keep = |schedule: &Schedule| {
            RematPlan::new(policy, &bytes, &costs, &ranges, schedule).map_err(Error::input)
        };
        let mut table = keep(&schedule)?;
        if is_configured {
            let work = Times::of_rates(&costs, Rates::of_model(*pipeline.cost_model, 1.0));
            let times = |schedule: &Schedule, table: &RematPlan| {
                simulator_costs(&costs, &work, &ranges, schedule, table).swap_remove(0)
            };
            if pipeline.schedule.follows_costs() {
                let (micro_batches, times) = (schedule.micro_batches(), times(&schedule, &table));
                schedule = pipeline
                    .schedule
                    .build(stages, micro_batches, Some(&times))?;
                table = keep(&schedule)?;
            }
            let times = times(&schedule, &table);
            schedule = cut_and_schedule::hide_recomputation(schedule, policy, &times)?;
        }
        let memory = gpipe_remat::predict_memory(&bytes, &costs, &ranges, &schedule, &table);
        let [parameters, trained] = model::parameters(&mut layers);
        let stored = precision::stored(config)?;
        Ok(Self {
            parameter_bytes: precision::bytes_per_parameter(stored, &optimizer),
            layers,
            costs,
            partition,
            loads,
            prices,
            cost_model: *pipeline.cost_model,
            schedule,
            table,
            memory,
            messages: Vec::new(),
            parameters,
            trained,
            optimizer,
            learning_rate: config.learning_rate(),
            devices,
            gpus,
            threads: pipeline.threads.get(),
            trains: true,
            saves: config.run.keep.get() > 0,
            weights: Vec::new(),
            warning: None,
            kernel_cache: None,
            world: None,
            ranks: 1,
            links: Vec::new(),
        })
    }

    /// Counts on these links between ranks, of which those that are no neighbours have the slowest.
    #[must_use]
    pub fn with_links(mut self, measured: &[MeasuredLink]) -> Self {
        let (device_of, portals) = (self.schedule.device_of(), self.table.portals());
        let rank = |stage: usize| self.rank_of(device_of[stage]);
        let link = |(stage, layers): (usize, Range<usize>)| {
            let ends = (rank(stage - 1), rank(stage));
            let neighbours = |one: &&MeasuredLink| {
                (one.from, one.to) == (ends.0.min(ends.1), ends.0.max(ends.1))
            };
            let own = links::slowest(measured.iter().filter(neighbours));
            match own.or_else(|| links::slowest(measured.iter())) {
                Some(link) if ends.0 != ends.1 => {
                    let bytes = portals.flow_bytes(&self.costs, stage, layers.start);
                    let [forward, backward] =
                        bytes.map(|bytes| bytes as f64 / link.bytes_per_second);
                    LinkCosts {
                        latency: link.latency,
                        forward,
                        backward,
                    }
                }
                _ => LinkCosts::default(),
            }
        };
        self.links = self
            .partition
            .ranges()
            .enumerate()
            .skip(1)
            .map(link)
            .collect();
        self
    }

    /// The rank of a worker of this replica.
    fn rank_of(&self, worker: usize) -> usize {
        let first = match &self.world {
            Some(world) => world.rank() / self.ranks * self.ranks,
            None => 0,
        };
        first + worker * self.ranks / self.schedule.devices()
    }

    /// The same for forward passes alone ([`assemble_to`](Self::assemble_to)): there are neither gradients and optimizer
    /// states nor checkpoints, and none of them is predicted.
    #[must_use]
    pub fn forward_only(mut self) -> Self {
        for layer in &mut self.layers {
            freeze(layer.as_mut(), |_| true);
        }
        for stage in &mut self.memory {
            (stage.gradients, stage.optimizer, stage.ties) = (0, 0, 0);
        }
        self.trains = false;
        self
    }

    /// Keeps compiled CUDA kernels in a folder.
    #[must_use]
    pub fn with_kernel_cache(mut self, folder: Option<&Path>) -> Self {
        self.kernel_cache = folder.map(Path::to_owned);
        self
    }

    /// The range of layers of each stage.
    pub fn cut(&self) -> Vec<Range<usize>> {
        self.partition.ranges().collect()
    }

    /// The names of the first and the last layer of a non-empty range.
    pub fn names(&self, layers: &Range<usize>) -> String {
        let (first, last) = (
            self.layers[layers.start].name(),
            self.layers[layers.end - 1].name(),
        );
        if layers.len() == 1 {
            first.to_owned()
        } else {
            format!("{first} .. {last}")
        }
    }
}
