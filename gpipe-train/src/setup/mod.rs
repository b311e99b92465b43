//! What is built from a configuration: layers, their costs, a cut, a schedule, and the prediction
//! of bytes and time. Nothing here needs memory for tensors until [`Setup::assemble`].

mod cut_and_schedule;
mod forecast;
mod info;
mod memory_check;
mod model;
mod start;

use std::ops::Range;
use std::path::{Path, PathBuf};

use gpipe_hf::Weights;
use gpipe_layers::{Init, Layer, LearningRate, Optimizer};
use gpipe_partition::{Loads, Partition};
use gpipe_remat::{ModelCosts, ParameterBytes, RematPlan, StageMemory, Times, simulator_costs};
use gpipe_sched::Schedule;
use gpipe_tensor::{DeviceId, Shape};

pub use cut_and_schedule::cut;
pub use forecast::Forecast;
pub use model::{input, layers, optimizer};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::precision;

/// A run that can be drawn, priced and started.
pub struct Setup {
    layers: Vec<Box<dyn Layer>>,
    /// What each layer costs.
    pub costs: ModelCosts,
    /// Which layers each stage runs.
    pub partition: Partition,
    /// What that costs each stage, under the cost model that was asked for.
    pub loads: Loads,
    /// When each stage works on what.
    pub schedule: Schedule,
    /// What is kept between forward and backward.
    pub table: RematPlan,
    /// Predicted bytes of each stage.
    pub memory: Vec<StageMemory>,
    /// Parameters, a tied one counted once.
    pub parameters: u64,
    /// Bytes that training holds for a parameter: of its value, its gradient and the optimizer.
    pub parameter_bytes: [u64; 3],
    /// How parameters follow gradients.
    pub optimizer: Optimizer,
    /// How fast, by steps from 0.
    pub learning_rate: LearningRate,
    /// Where each stage runs.
    pub devices: Vec<DeviceId>,
    threads: usize,
    weights: Option<Weights>,
    /// Where compiled kernels for GPUs are kept.
    kernel_cache: Option<PathBuf>,
}

impl Setup {
    /// Checks that everything fits together and predicts what it takes.
    pub fn new(config: &TrainConfig) -> Result<Self> {
        Self::under(config, None)
    }

    /// [`Setup::new`] under a schedule of one's own instead of the one that is configured.
    pub fn under(config: &TrainConfig, own: Option<Schedule>) -> Result<Self> {
        let pipeline = &config.pipeline;
        let stages = pipeline.stages.get();
        let mut layers = layers(config)?;
        if stages > layers.len() {
            let layers = layers.len();
            return Err(Error::invalid(format!(
                "{stages} stages but {layers} layers: use `pipeline.stages = {layers}` or fewer"
            )));
        }
        // The schedule comes first: it refuses numbers for which lists would not fit the memory.
        let follows = own.is_none();
        let mut schedule = match own {
            Some(own) => own,
            None => {
                let micro_batches = pipeline.micro_batches.get();
                pipeline.schedule.build(stages, micro_batches, None)?
            }
        };
        let workers = pipeline.devices.of_workers(schedule.devices());
        let devices = schedule.device_of().iter().map(|&w| workers[w]).collect();
        let batch = config.data.batch_size.get();
        let micro_batches =
            gpipe_remat::micro_batches(batch, schedule.micro_batches()).map_err(Error::input)?;
        let costs =
            ModelCosts::new(&layers, &micro_batches, input(config)).map_err(Error::input)?;

        let prices = costs
            .prices(&layers, *pipeline.cost_model)
            .map_err(Error::input)?;
        let partition = cut(&pipeline.partition, &prices, stages)?;
        let loads = partition.loads(&prices).map_err(Error::input)?;

        let optimizer = optimizer(config);
        let bytes = ParameterBytes::new(&mut layers, Some(&optimizer));
        let ranges: Vec<Range<usize>> = partition.ranges().collect();
        let keep = |schedule: &Schedule| {
            RematPlan::new(*pipeline.remat, &bytes, &costs, &ranges, schedule).map_err(Error::input)
        };
        let mut table = keep(&schedule)?;
        if follows {
            let flops = Times::of_flops(&costs, 1.0);
            let times = |schedule: &Schedule, table: &RematPlan| {
                simulator_costs(&costs, &flops, &ranges, schedule, table).swap_remove(0)
            };
            if pipeline.schedule.follows_costs() {
                let (micro_batches, times) = (schedule.micro_batches(), times(&schedule, &table));
                schedule = pipeline
                    .schedule
                    .build(stages, micro_batches, Some(&times))?;
                table = keep(&schedule)?;
            }
            let times = times(&schedule, &table);
            schedule = cut_and_schedule::hide_recomputation(schedule, *pipeline.remat, &times)?;
        }
        let memory = gpipe_remat::predict_memory(&bytes, &costs, &ranges, &schedule, &table);
        let parameters = model::parameters(&mut layers);
        let stored = precision::stored(config)?;
        Ok(Self {
            parameter_bytes: precision::bytes_a_parameter(stored, &optimizer),
            layers,
            costs,
            partition,
            loads,
            schedule,
            table,
            memory,
            parameters,
            optimizer,
            learning_rate: config.learning_rate(),
            devices,
            threads: pipeline.threads.get(),
            weights: None,
            kernel_cache: None,
        })
    }

    /// Keeps compiled kernels for GPUs in this folder.
    #[must_use]
    pub fn with_kernel_cache(mut self, folder: Option<&Path>) -> Self {
        self.kernel_cache = folder.map(Path::to_owned);
        self
    }

    /// Opens the weights that the model begins with, if it comes from a folder, and checks that
    /// they are what it needs.
    pub fn open_weights(&mut self, config: &TrainConfig) -> Result<()> {
        let Some(folder) = config.model.folder() else {
            return Ok(());
        };
        self.weights = Some(Weights::open(folder, &self.owners())?);
        for layer in &mut self.layers {
            // All zeros take no time to make, and are replaced.
            layer.params(&mut |param| param.init = Init::Zeros);
        }
        Ok(())
    }

    /// Names and shapes of the parameters, a tied one once.
    pub fn owners(&mut self) -> Vec<(String, Shape)> {
        let mut owners = Vec::new();
        for layer in &mut self.layers {
            layer.params(&mut |param| {
                if !param.tied {
                    owners.push((param.name.clone(), param.shape.clone()));
                }
            });
        }
        owners
    }

    /// The layers of each stage.
    pub fn cut(&self) -> Vec<Range<usize>> {
        self.partition.ranges().collect()
    }

    /// The names of a stage's layers, from the first to the last.
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
