//! The search space of the planner: schedules, numbers of micro-batches, and workers.

use std::num::NonZero;
use std::ops::Range;

use gpipe_partition::CutRule;
use gpipe_remat::Policy;
use gpipe_remat::planner::{NamedOrder, Worker};
use gpipe_report::numbers::counted;
use gpipe_sched::{Costs, Schedule, ScheduleKind};
use gpipe_tensor::{DeviceId, KnownGpu};

use crate::config::{FixedKeys, ScheduleChoice, TrainConfig};
use crate::error::{Error, Result};
use crate::setup::{check_stages, cut};

/// Maximum number of workers where none are listed.
const MOST_WORKERS: usize = 8;

/// The configured schedule table.
pub struct ScheduleTable {
    /// The path of its file.
    name: String,
    schedule: Schedule,
}

impl ScheduleTable {
    /// Reads the configured schedule, if it is a table.
    pub fn of(config: &TrainConfig) -> Result<Option<Self>> {
        let choice = &config.pipeline.schedule;
        let (name, table) = (choice.to_string(), choice.table()?);
        Ok(table.map(|schedule| Self { name, schedule }))
    }

    fn fault(&self, words: &str) -> Error {
        Error::invalid(format!("`pipeline.schedule = {}`: {words}", self.name))
    }

    /// The table as a schedule of the search, for its own numbers of workers and micro-batches alone.
    fn named(self, workers: usize, layers: usize) -> Result<NamedOrder> {
        let (stages, devices) = (self.schedule.stages(), self.schedule.devices());
        if devices > workers {
            let words = format!("it is for {devices} workers, but there are {workers}: list more");
            return Err(self.fault(&words));
        }
        if stages > layers {
            let layers = counted(layers as u64, "layer");
            let words = format!("it has {stages} stages, but the model {layers}");
            return Err(self.fault(&words));
        }
        let chunks = stages / devices;
        let mut owned = vec![0; devices];
        for &device in self.schedule.device_of() {
            owned[device] += 1;
        }
        if owned.iter().any(|&count| count != chunks) {
            return Err(self.fault(
                "its workers have different numbers of stages: such a table can be trained, not planned with",
            ));
        }
        Ok(NamedOrder {
            name: self.name.clone(),
            chunks,
            follow: None,
            held: None,
            make: Box::new(move |workers, micro_batches| {
                let shape = (self.schedule.devices(), self.schedule.micro_batches());
                (shape == (workers, micro_batches)).then(|| self.schedule.clone())
            }),
        })
    }
}

/// What a plan may choose from. Keys that were given leave no choice.
pub struct SearchSpace {
    pub orders: Vec<NamedOrder>,
    pub micro_batches: Vec<usize>,
    /// Whether there is one number of micro-batches.
    is_one_number: bool,
    /// Whether a table of actions may be used, which has no replicas.
    pub has_table: bool,
    /// The number of stages, if given.
    pub stages: Option<usize>,
    /// The cut, if given.
    pub cut: Option<Vec<Range<usize>>>,
    /// The rematerialization policy, if given.
    pub policy: Option<Policy>,
}

impl SearchSpace {
    /// The plans for a batch of `batch` samples and a model of `layers` layers on up to `workers` workers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no plan has the given keys.
    pub fn new(
        config: &TrainConfig,
        fixed: &FixedKeys,
        table: Option<ScheduleTable>,
        [workers, layers, batch]: [usize; 3],
    ) -> Result<Self> {
        let pipeline = &config.pipeline;
        // Another number of micro-batches would be another model.
        let is_one_number = fixed.micro_batches || config.model.depends_on_micro_batches();
        let has_table = table.is_some();
        let micro_batches = match is_one_number {
            true => vec![pipeline.micro_batches.get()],
            false => numbers_of_micro_batches(batch, table.as_ref())?,
        };
        // A group has a micro-batch.
        let groups = pipeline.groups.get();
        let mut micro_batches = micro_batches;
        micro_batches.retain(|&number| number >= groups);
        if micro_batches.is_empty() {
            micro_batches.push(pipeline.micro_batches.get());
        }
        let table = table
            .map(|table| table.named(workers, layers))
            .transpose()?;
        let orders = match (&*pipeline.schedule, fixed.schedule, table) {
            (_, true, Some(table)) => vec![table],
            (ScheduleChoice::Kind(kind), true, None) => vec![named(*kind)],
            (_, _, table) => schedules().chain(table).collect(),
        };
        if fixed.stages {
            check_stages(pipeline, layers)?;
        }
        let stages = fixed.stages.then(|| pipeline.stages.get());
        let cut = match &*pipeline.partition {
            CutRule::Sizes(sizes) if fixed.partition => Some(given_cut(sizes, stages, layers)?),
            CutRule::Histogram if fixed.partition => {
                return Err(Error::invalid(
                    "`pipeline.partition = histogram`: a recommendation finds the fastest cut: leave it out, \
                     or give sizes such as 3,3,4,2",
                ));
            }
            _ => None,
        };
        let space = Self {
            is_one_number,
            has_table,
            stages: cut.as_ref().map_or(stages, |cut| Some(cut.len())),
            orders,
            micro_batches,
            cut,
            policy: fixed.remat.then(|| *pipeline.remat),
        };
        space.check(&pipeline.schedule, workers, layers)?;
        Ok(space)
    }

    /// The numbers of micro-batches of each of `replicas` replicas, for a batch of `batch` samples.
    pub fn of_replica(&self, replicas: usize, batch: usize) -> Vec<usize> {
        match (replicas, self.is_one_number) {
            (1, _) => self.micro_batches.clone(),
            (_, false) => numbers(batch / replicas),
            (_, true) => {
                let numbers = self.micro_batches.iter();
                let shared = numbers.filter(|number| number.is_multiple_of(replicas));
                shared.map(|number| number / replicas).collect()
            }
        }
    }

    /// Refuses keys that fit no plan together.
    fn check(&self, schedule: &ScheduleChoice, workers: usize, layers: usize) -> Result<()> {
        let exists = |order: &NamedOrder, workers: usize| {
            let mut numbers = self.micro_batches.iter();
            numbers.any(|&number| (order.make)(workers, number).is_some())
        };
        let fits = |order: &NamedOrder| match self.stages {
            Some(stages) => {
                let devices = stages / order.chunks;
                stages.is_multiple_of(order.chunks)
                    && (1..=workers).contains(&devices)
                    && exists(order, devices)
            }
            None => (1..=workers.min(layers / order.chunks)).any(|devices| exists(order, devices)),
        };
        if self.stages.is_none_or(|stages| stages <= layers) && self.orders.iter().any(fits) {
            return Ok(());
        }
        let Some(stages) = self.stages else {
            return Err(Error::invalid(format!(
                "`pipeline.schedule = {schedule}`: no plan for {layers} layers and `pipeline.micro_batches = {}` \
                 has it: choose another schedule, or leave the two out",
                self.micro_batches[0]
            )));
        };
        // A given cut goes with its number of stages.
        let sizes = match &self.cut {
            Some(_) => ", with as many sizes in `pipeline.partition`",
            None => "",
        };
        if let [order] = &self.orders[..] {
            // What is wrong with these numbers themselves.
            schedule.build(stages, self.micro_batches[0], None)?;
            let (needed, most) = (stages.div_ceil(order.chunks), workers * order.chunks);
            return Err(Error::invalid(format!(
                "{stages} stages with `pipeline.schedule = {schedule}` are for {needed} workers, but there are \
                 {workers}: list more, or use `pipeline.stages = {most}`{sizes}"
            )));
        }
        Err(Error::invalid(format!(
            "no schedule has {} on up to {}: list more, or use `pipeline.stages = {workers}`{sizes}",
            counted(stages as u64, "stage"),
            counted(workers as u64, "worker")
        )))
    }
}

/// The layers of each stage.
fn given_cut(sizes: &[usize], stages: Option<usize>, layers: usize) -> Result<Vec<Range<usize>>> {
    // Its errors are those of training.
    let costs = vec![1; layers];
    let rule = CutRule::Sizes(sizes.to_vec());
    let partition = cut(&rule, &costs, stages.unwrap_or(sizes.len()))?;
    Ok(partition.ranges().collect())
}

fn named(kind: ScheduleKind) -> NamedOrder {
    NamedOrder {
        name: kind.to_string(),
        chunks: kind.chunks(),
        follow: match kind.follows_costs() {
            true => Some(Box::new(move |schedule: &Schedule, costs: &Costs| {
                let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
                kind.build(stages, micro_batches, Some(costs)).ok()
            })),
            false => None,
        },
        held: match kind {
            ScheduleKind::ZeroBubble(Some(held)) => Some(Box::new(move |_| held)),
            ScheduleKind::ZeroBubble(None) => Some(Box::new(|stages| stages)),
            _ => None,
        },
        make: Box::new(move |workers, micro_batches| {
            let stages = workers * kind.chunks();
            let choice = ScheduleChoice::Kind(kind);
            choice.build(stages, micro_batches, None).ok()
        }),
    }
}

/// The built-in schedules.
fn schedules() -> impl Iterator<Item = NamedOrder> {
    let kinds = ScheduleKind::all().chain([ScheduleKind::ZeroBubble(None)]);
    kinds.map(named)
}

/// Divisors of the batch and powers of two, up to 256.
fn numbers(batch: usize) -> Vec<usize> {
    (1..=batch.min(256))
        .filter(|&parts| batch.is_multiple_of(parts) || parts.is_power_of_two())
        .collect()
}

/// The numbers of micro-batches to try, and the number of the table.
fn numbers_of_micro_batches(batch: usize, table: Option<&ScheduleTable>) -> Result<Vec<usize>> {
    let mut numbers = numbers(batch);
    if let Some(table) = table {
        let own = table.schedule.micro_batches();
        if own > batch {
            let samples = counted(batch as u64, "sample");
            let words = format!("it has {own} micro-batches, but the batch {samples}");
            return Err(table.fault(&words));
        }
        if !numbers.contains(&own) {
            numbers.push(own);
        }
    }
    Ok(numbers)
}

/// The number of workers where none are listed: at least those that the given stages, a given cut or the table need.
pub fn workers_for(
    config: &TrainConfig,
    fixed: &FixedKeys,
    table: Option<&ScheduleTable>,
    otherwise: usize,
) -> usize {
    let pipeline = &config.pipeline;
    let chunks = match fixed.schedule {
        true => pipeline.schedule.chunks(),
        false => 1,
    };
    let stages = match &*pipeline.partition {
        _ if fixed.stages => pipeline.stages.get(),
        CutRule::Sizes(sizes) if fixed.partition => sizes.len(),
        _ => 1,
    };
    let needed = match table {
        Some(table) => table.schedule.devices(),
        None => stages.div_ceil(chunks),
    };
    let listed = match pipeline.devices.repeated() {
        Some(_) => fixed.workers,
        None => usize::try_from(pipeline.devices.workers()).ok(),
    };
    listed.unwrap_or(otherwise.max(needed)).min(1 << 16)
}

/// The workers of this machine, and the cores that they share.
pub fn here(
    config: &TrainConfig,
    fixed: &FixedKeys,
    table: Option<&ScheduleTable>,
) -> (Vec<Worker>, usize) {
    let threads = config.pipeline.threads.get();
    let count = workers_for(config, fixed, table, threads.clamp(2, MOST_WORKERS));
    let memory = config.pipeline.memory.bytes();
    let gpu = match config.pipeline.devices.first() {
        DeviceId::Known(name) => KnownGpu::of_name(name),
        _ => None,
    };
    let memory = memory.or(gpu.map(|gpu| gpu.memory));
    let available = std::thread::available_parallelism().map_or(1, NonZero::get);
    let cores = threads.min(available).max(1);
    let worker = Worker { speed: 1.0, memory };
    (vec![worker; count], cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_divide_or_double() {
        let numbers = |batch| numbers_of_micro_batches(batch, None).unwrap();
        assert_eq!(numbers(12), [1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(numbers(1), [1]);
    }
}
