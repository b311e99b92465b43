//! The search space of the planner: schedules, numbers of micro-batches, and workers.

use std::num::NonZero;

use gpipe_remat::planner::{NamedOrder, Worker};
use gpipe_sched::{Costs, Schedule, ScheduleKind};

use crate::config::{ScheduleChoice, TrainConfig};
use crate::error::{Error, Result};

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
            let words = format!("it has {stages} stages, but there are {layers} layers");
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

/// All built-in schedules, and the table.
pub fn schedules(
    table: Option<ScheduleTable>,
    workers: usize,
    layers: usize,
) -> Result<Vec<NamedOrder>> {
    let named = |kind: ScheduleKind| NamedOrder {
        name: kind.to_string(),
        chunks: kind.chunks(),
        follow: match kind.follows_costs() {
            true => Some(Box::new(move |schedule: &Schedule, costs: &Costs| {
                let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
                kind.build(stages, micro_batches, Some(costs)).ok()
            })),
            false => None,
        },
        held: kind.follows_costs().then_some(|stages| stages),
        make: Box::new(move |workers, micro_batches| {
            let stages = workers * kind.chunks();
            let choice = ScheduleChoice::Kind(kind);
            choice.build(stages, micro_batches, None).ok()
        }),
    };
    let mut orders: Vec<NamedOrder> = ScheduleKind::all()
        .chain([ScheduleKind::ZeroBubble(None)])
        .map(named)
        .collect();
    if let Some(table) = table {
        orders.push(table.named(workers, layers)?);
    }
    Ok(orders)
}

/// The numbers of micro-batches to try: divisors of the batch and powers of two, up to 256, and the
/// number of the table.
pub fn numbers_of_micro_batches(batch: usize, table: Option<&ScheduleTable>) -> Result<Vec<usize>> {
    let most = batch.min(256);
    let mut numbers: Vec<usize> = (1..=most)
        .filter(|&parts| batch.is_multiple_of(parts) || parts.is_power_of_two())
        .collect();
    if let Some(table) = table {
        let own = table.schedule.micro_batches();
        if own > batch {
            let words = format!("it has {own} micro-batches, but the batch {batch} samples");
            return Err(table.fault(&words));
        }
        if !numbers.contains(&own) {
            numbers.push(own);
        }
    }
    Ok(numbers)
}

/// The workers of this machine, and the cores that they share.
pub fn here(config: &TrainConfig, table: Option<&ScheduleTable>) -> (Vec<Worker>, usize) {
    let devices = &config.pipeline.devices;
    let threads = config.pipeline.threads.get();
    let count = match devices.repeated() {
        Some(_) => {
            let own = table.map_or(0, |table| table.schedule.devices());
            threads.clamp(2, MOST_WORKERS).max(own)
        }
        None => usize::try_from(devices.workers()).unwrap_or(usize::MAX),
    };
    let memory = config.pipeline.memory.bytes();
    let available = std::thread::available_parallelism().map_or(1, NonZero::get);
    let cores = threads.min(available).max(1);
    let worker = Worker { speed: 1.0, memory };
    (vec![worker; count.min(1 << 16)], cores)
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
