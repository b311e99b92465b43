//! What is built from a configuration: layers, their costs, a cut, a schedule, and the prediction
//! of bytes and time. Nothing here needs memory for tensors until [`Setup::assemble`].

use std::ops::Range;

use gpipe_layers::layers::Function;
use gpipe_layers::models::{self, GptConfig, MlpConfig};
use gpipe_layers::{Flow, Init, Layer, LearningRate, Loss, Optimizer, compute_in};
use gpipe_partition::{Loads, Partition};
use gpipe_remat::{
    Assembled, Assembly, AssemblyError, Bytes, LossTurn, ModelCosts, Policy, StageMemory, Table,
    Times, simulator_costs,
};
use gpipe_sched::{Costs, Schedule, Timeline, Turn, simulate, simulate_shared};
use gpipe_tensor::{DType, Device, DeviceId, Shape, Tensors, find_cuda};

use crate::config::{Config, Cut, Order};
use crate::data::{CLASSES, PIXELS};
use crate::fail::{Fail, Result};
use crate::machine;
use crate::model_folder::{self, Weights};
use crate::output::numbers;
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
    pub table: Table,
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
}

/// What is known of a run before it begins, stage by stage.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Parameters of all stages, a tied one counted once.
    pub parameters: u64,
    /// Bytes that training holds for each of them: of its value, its gradient and the optimizer.
    pub parameter_bytes: [u64; 3],
    /// Workers that run the stages.
    pub workers: usize,
    /// Threads that they share.
    pub threads: usize,
    /// Layers.
    pub cut: Vec<usize>,
    /// Micro-batches that are held at once, at most.
    pub in_flight: Vec<usize>,
    /// Most bytes.
    pub peaks: Vec<u64>,
    /// Share of the time in which workers idle, were all stages alike and nothing computed twice:
    /// (K − 1) / (M + K − 1) under gpipe and 1f1b.
    pub ideal_bubble: f64,
    /// The same for this cut and this rematerialization.
    pub bubble: f64,
    /// The same with as many threads as there are: where workers share them, some have to wait.
    pub bubble_here: f64,
}

impl Forecast {
    /// The bubbles in words.
    pub fn bubbles(&self) -> String {
        let (cut, here) = (
            numbers::percent(self.bubble),
            numbers::percent(self.bubble_here),
        );
        let shared = match here == cut {
            true => String::new(),
            false => format!(
                " ({here} with {} workers on {} threads)",
                self.workers, self.threads
            ),
        };
        format!(
            "predicted {cut}{shared}; ideal {}",
            numbers::percent(self.ideal_bubble)
        )
    }
}

impl Setup {
    /// Checks that everything fits together and predicts what it takes.
    pub fn new(config: &Config) -> Result<Self> {
        Self::under(config, None)
    }

    /// [`Setup::new`] under a schedule of one's own instead of the one that is configured.
    pub fn under(config: &Config, own: Option<Schedule>) -> Result<Self> {
        let pipeline = &config.pipeline;
        let stages = pipeline.stages.get();
        let mut layers = layers(config)?;
        if stages > layers.len() {
            let layers = layers.len();
            return Err(Fail::asked(format!(
                "{stages} stages but {layers} layers: use --stages {layers} or fewer"
            )));
        }
        // The schedule comes first: it refuses numbers for which lists would not fit the memory.
        let follows = own.is_none();
        let mut schedule = match own {
            Some(own) => own,
            None => schedule(&pipeline.schedule, stages, pipeline.micro_batches.get())?,
        };
        let workers = pipeline.devices.of_workers(schedule.devices());
        let devices = schedule.device_of().iter().map(|&w| workers[w]).collect();
        let batch = config.data.batch_size.get();
        let micro_batches =
            gpipe_remat::micro_batches(batch, schedule.micro_batches()).map_err(Fail::usage)?;
        let costs = ModelCosts::new(&layers, &micro_batches, input(config)).map_err(Fail::usage)?;

        let prices = costs
            .prices(&layers, *pipeline.cost_model)
            .map_err(Fail::usage)?;
        let partition = cut(&pipeline.partition, &prices, stages)?;
        let loads = partition.loads(&prices).map_err(Fail::usage)?;

        let optimizer = optimizer(config);
        let bytes = gpipe_remat::Weights::new(&mut layers, Some(&optimizer));
        let ranges: Vec<Range<usize>> = partition.ranges().collect();
        let keep = |schedule: &Schedule| {
            Table::new(*pipeline.remat, &bytes, &costs, &ranges, schedule).map_err(Fail::usage)
        };
        let mut table = keep(&schedule)?;
        if follows {
            let flops = Times::of_flops(&costs, 1.0);
            let times = |schedule: &Schedule, table: &Table| {
                simulator_costs(&costs, &flops, &ranges, schedule, table).swap_remove(0)
            };
            if let Order::ZeroBubble(_) = *pipeline.schedule {
                schedule = follow(
                    &pipeline.schedule,
                    schedule.clone(),
                    &times(&schedule, &table),
                )?;
                table = keep(&schedule)?;
            }
            let times = times(&schedule, &table);
            schedule = hide_recomputation(schedule, *pipeline.remat, &times)?;
        }
        let memory = gpipe_remat::predict_memory(&bytes, &costs, &ranges, &schedule, &table);
        let parameters = parameters(&mut layers);
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
        })
    }

    /// Opens the weights that the model begins with, if it comes from a folder, and checks that
    /// they are what it needs.
    pub fn open_weights(&mut self, config: &Config) -> Result<()> {
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

    /// What is known before the run begins.
    pub fn forecast(&self) -> Result<Forecast> {
        let stages = self.schedule.stages();
        let ideal =
            simulate(&self.schedule, &Costs::even(stages, 1.0, 2.0)).map_err(Fail::usage)?;
        let flops = Times::of_flops(&self.costs, 1.0);
        let costs = self.simulator_costs(&flops);
        let free = simulate(&self.schedule, &costs[0]).map_err(Fail::usage)?;
        let here = self.timeline(&flops)?;
        Ok(Forecast {
            parameters: self.parameters,
            parameter_bytes: self.parameter_bytes,
            threads: self.threads,
            cut: self.partition.sizes(),
            in_flight: (0..stages).map(|stage| self.schedule.live(stage)).collect(),
            peaks: self.memory.iter().map(StageMemory::peak).collect(),
            ideal_bubble: ideal.bubble(),
            bubble: free.bubble(),
            bubble_here: here.bubble(),
            workers: free.devices(),
        })
    }

    /// Seconds of a step whose layers take so long.
    pub fn step_seconds(&self, times: &Times) -> Result<f64> {
        let device_of = self.schedule.device_of();
        let update = times.update(&self.cut(), device_of, |_| 1.0, self.processors());
        Ok(self.timeline(times)?.makespan() + update)
    }

    /// The step with what every worker would hold.
    pub fn predicted(&self, times: &Times) -> Result<Timeline> {
        let (cut, schedule) = (self.cut(), &self.schedule);
        let held =
            gpipe_remat::predict_held(&self.memory, &self.costs, &cut, schedule, &self.table);
        Ok(self.timeline(times)?.with_held(&held))
    }

    /// The step on this machine's threads.
    fn timeline(&self, times: &Times) -> Result<Timeline> {
        let costs = self.simulator_costs(times);
        let processors = self.processors().unwrap_or(usize::MAX);
        simulate_shared(&self.schedule, &costs, processors).map_err(Fail::usage)
    }

    fn simulator_costs(&self, times: &Times) -> Vec<Costs> {
        simulator_costs(&self.costs, times, &self.cut(), &self.schedule, &self.table)
    }

    /// The threads that workers share, if they do.
    fn processors(&self) -> Option<usize> {
        let on_processor = self.devices.iter().all(|&id| id == DeviceId::Cpu);
        on_processor.then_some(self.threads)
    }

    /// Refuses what a worker's limit or this machine cannot hold, before it is tried.
    pub fn check_memory(&self, config: &Config) -> Result<()> {
        if let Some(limit) = config.pipeline.memory.bytes() {
            let mut workers = vec![0_u64; self.schedule.devices()];
            for (memory, &worker) in self.memory.iter().zip(self.schedule.device_of()) {
                workers[worker] = workers[worker].saturating_add(memory.peak());
            }
            let most = (0..workers.len()).max_by_key(|&worker| workers[worker]);
            if let Some(worker) = most.filter(|&worker| workers[worker] > limit) {
                let stages = self.schedule.stages() / workers.len();
                return Err(Fail::asked(format!(
                    "worker {worker} needs {} but --memory is {}: use --memory {}, --remat budget:{} or --auto",
                    numbers::bytes(workers[worker]),
                    Bytes(limit),
                    Bytes(workers[worker]).rounded_up(),
                    Bytes(limit / stages.max(1) as u64),
                )));
            }
        }
        // A batch is there as samples and targets, of four bytes a token or pixel.
        let sample = match config.model.classifies() {
            true => PIXELS as u64 + 1,
            false => 2 * config.data.seq_len.u64(),
        };
        let batch = config
            .data
            .batch_size
            .u64()
            .saturating_mul(sample)
            .saturating_mul(4);
        // A checkpoint is copied before it is written: the value and two moments, as they are and as
        // files.
        let copies = match config.run.keep.get() {
            0 => 0,
            _ => self.parameters.saturating_mul(2 * 3 * 4),
        };
        let on_host = batch.saturating_add(copies);
        let on_host = on_host.saturating_add(self.peaks_on(DeviceId::Cpu));
        enough("this machine", on_host, machine::memory())?;
        let devices = find_cuda().map_or_else(|_| Vec::new(), |found| found.devices);
        for device in devices {
            let name = device.id.to_string();
            enough(&name, self.peaks_on(device.id), Some(device.memory_bytes))?;
        }
        Ok(())
    }

    /// The peaks of all stages on a device together.
    fn peaks_on(&self, device: DeviceId) -> u64 {
        let stages = self.memory.iter().zip(&self.devices);
        let peaks = stages.filter(|&(_, &id)| id == device);
        peaks.fold(0, |sum: u64, (stage, _)| sum.saturating_add(stage.peak()))
    }

    /// Starts the workers, which end in the loss and can train.
    pub fn assemble(self, config: &Config) -> Result<Assembled> {
        let optimizer = Some(self.optimizer.clone());
        self.start(config, optimizer, |last, transit| {
            LossTurn::new(Loss::CrossEntropy, last, transit)
        })
    }

    /// Starts workers that only run forward, to another end.
    pub fn assemble_to<T: Turn<Tensors> + 'static>(
        self,
        config: &Config,
        turn: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        self.start(config, None, turn)
    }

    fn start<T: Turn<Tensors> + 'static>(
        self,
        config: &Config,
        optimizer: Option<Optimizer>,
        turn: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> Result<Assembled<T>> {
        let host = machine::host(config, optimizer.is_some()).map_err(Fail::usage)?;
        // What cannot be used is said before anything begins; what can stays open until it is.
        let mut open: Vec<Device> = Vec::new();
        for &id in &self.devices {
            if open.iter().all(|device| device.id() != id) {
                open.push(host.device(id).map_err(Fail::usage)?);
            }
        }
        let assembly = Assembly {
            cut: self.cut(),
            layers: self.layers,
            schedule: self.schedule,
            table: self.table,
            devices: self.devices,
            loss: Loss::CrossEntropy,
            optimizer,
            seed: config.run.seed.u64(),
        };
        let mut assembled = assembly
            .build_to(&host, turn)
            .map_err(|error| match error {
                AssemblyError::Plan(error) => Fail::usage(error),
                error => Fail::run(error),
            })?;
        drop(open);
        if let Some(weights) = self.weights {
            model_folder::fill(&mut assembled.pipeline, weights)?;
        }
        Ok(assembled)
    }
}

/// Refuses what needs more than there is.
fn enough(place: &str, needed: u64, there: Option<u64>) -> Result<()> {
    match there {
        Some(there) if needed > there => Err(Fail::asked(format!(
            "the run needs {} but {place} has {}: use a smaller --batch-size, --seq-len or model, \
             or --remat stage",
            numbers::bytes(needed),
            numbers::bytes(there)
        ))),
        _ => Ok(()),
    }
}

/// The layers of the configured model.
pub fn layers(config: &Config) -> Result<Vec<Box<dyn Layer>>> {
    let stored = precision::stored(config)?;
    let mut layers = match &config.model.hidden {
        None => models::gpt(&model(config)),
        Some(hidden) => models::mlp(&MlpConfig {
            inputs: PIXELS,
            hidden: hidden.get().to_vec(),
            outputs: CLASSES,
            activation: Function::Relu,
            dropout: config.model.dropout.get() as f32,
        }),
    }
    .map_err(Fail::usage)?;
    for layer in &mut layers {
        compute_in(layer.as_mut(), stored);
    }
    Ok(layers)
}

/// What enters the first layer, for a number of samples.
pub fn input(config: &Config) -> impl Fn(usize) -> Vec<Flow> + use<> {
    let (tokens, classifies) = (config.data.seq_len.get(), config.model.classifies());
    move |samples| match classifies {
        true => vec![Flow::f32([samples, PIXELS])],
        false => vec![Flow {
            shape: [samples, tokens].into(),
            dtype: DType::U32,
        }],
    }
}

/// The cut that was asked for, of layers that cost so much each.
pub fn cut(rule: &Cut, costs: &[u64], stages: usize) -> Result<Partition> {
    match rule {
        Cut::Balance => gpipe_partition::balance(costs, stages),
        Cut::Histogram => {
            let costs: Vec<f64> = costs.iter().map(|&cost| cost as f64).collect();
            gpipe_partition::histogram(&costs, stages)
        }
        Cut::Sizes(sizes) if sizes.len() != stages => {
            let parts = sizes.len();
            return Err(Fail::asked(format!(
                "{parts} sizes in --partition but {stages} stages: give one size for each, or --stages {parts}"
            )));
        }
        Cut::Sizes(sizes) => gpipe_partition::explicit(sizes, costs.len()),
    }
    .map_err(Fail::usage)
}

/// The schedule anew, if it is one that follows the costs.
pub fn follow(order: &Order, schedule: Schedule, costs: &Costs) -> Result<Schedule> {
    let Order::ZeroBubble(held) = order else {
        return Ok(schedule);
    };
    let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
    gpipe_sched::zero_bubble(stages, micro_batches, costs, |_| held.unwrap_or(stages))
        .map_err(Fail::usage)
}

/// Computes again what was not kept while a worker would wait, if that makes the step shorter.
fn hide_recomputation(schedule: Schedule, policy: Policy, costs: &Costs) -> Result<Schedule> {
    // A budget is weighed without anything computed ahead.
    if matches!(policy, Policy::Keep | Policy::Budget(_)) {
        return Ok(schedule);
    }
    let early = schedule.recompute_early(costs).map_err(Fail::usage)?;
    let seconds = |schedule: &Schedule| simulate(schedule, costs).map(|t| t.makespan());
    let gains = seconds(&early).map_err(Fail::usage)? < seconds(&schedule).map_err(Fail::usage)?;
    Ok(if gains { early } else { schedule })
}

/// The most pairs of a stage and a micro-batch: far beyond any training, and within any memory.
const MOST_CELLS: usize = 1 << 20;

/// The schedule that was asked for. One that follows the costs is 1F1B until they are known.
pub fn schedule(order: &Order, stages: usize, micro_batches: usize) -> Result<Schedule> {
    if let Some(table) = order.table()? {
        return Ok(table);
    }
    let chunks = order.chunks();
    if !stages.is_multiple_of(chunks) {
        let (below, above) = (stages / chunks * chunks, stages.next_multiple_of(chunks));
        let counts = match below {
            0 => above.to_string(),
            below => format!("{below} or {above}"),
        };
        return Err(Fail::asked(format!(
            "{stages} stages but {chunks} on each worker: use --stages {counts}"
        )));
    }
    // What follows makes lists of actions: a few hundred bytes for each stage and micro-batch.
    let most = MOST_CELLS / stages;
    if micro_batches > most {
        return Err(Fail::asked(format!(
            "{stages} stages and {micro_batches} micro-batches make a schedule that is too long to \
             be looked at: use fewer micro-batches, {} at most",
            most.max(1)
        )));
    }
    let workers = stages / chunks;
    match order {
        Order::Gpipe => gpipe_sched::gpipe(workers, micro_batches),
        // A table was read above.
        Order::OneFOneB | Order::ZeroBubble(_) | Order::File(_) => {
            gpipe_sched::one_f_one_b(workers, micro_batches)
        }
        Order::Interleaved(_) => gpipe_sched::interleaved(workers, chunks, micro_batches),
        Order::LoopedBfs(_) => gpipe_sched::looped_bfs(workers, chunks, micro_batches),
        Order::ZbH1 => gpipe_sched::zb_h1(workers, micro_batches),
        Order::ZbH2 => gpipe_sched::zb_h2(workers, micro_batches),
        Order::ZbV => gpipe_sched::zb_v(workers, micro_batches),
        Order::VHalf => gpipe_sched::v_half(workers, micro_batches),
        Order::VMin => gpipe_sched::v_min(workers, micro_batches),
        Order::DualPipeV => gpipe_sched::dualpipe_v(workers, micro_batches),
    }
    .map_err(Fail::usage)
}

/// The GPT that is configured.
pub fn model(config: &Config) -> GptConfig {
    let model = &config.model;
    GptConfig {
        vocab: model.vocab.get(),
        context: model.context.get(),
        width: model.width.get(),
        blocks: model.blocks.get(),
        heads: model.heads.get(),
        tied: model.tied,
        gelu: model.gelu.0,
        layer_norm_eps: model.layer_norm_eps.get() as f32,
        dropout: model.dropout.get() as f32,
    }
}

/// How parameters follow gradients.
pub fn optimizer(config: &Config) -> Optimizer {
    let optimizer = &config.optimizer;
    let (beta1, beta2, eps) = (
        optimizer.beta1.get(),
        optimizer.beta2.get(),
        optimizer.eps.get(),
    );
    Optimizer::adamw(
        beta1,
        beta2,
        eps,
        optimizer.weight_decay.get(),
        *optimizer.decay,
    )
}

fn parameters(layers: &mut [Box<dyn Layer>]) -> u64 {
    let mut parameters = 0_u64;
    for layer in layers {
        layer.params(&mut |param| {
            if !param.tied {
                parameters = parameters.saturating_add(param.elements());
            }
        });
    }
    parameters
}
