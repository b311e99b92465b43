//! The static information of a run in its report.

use std::ops::Range;

use gpipe_remat::{Bytes, Policy};
use gpipe_report::{Machine, Record, RunInfo, StageInfo};

use super::Setup;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::machine;

impl Setup {
    /// The record of a run, with its prediction and without steps.
    ///
    /// # Errors
    /// [`Error::Input`] if the schedule cannot be simulated.
    pub fn record(&self, config: &TrainConfig) -> Result<Record> {
        let info = self.info(config);
        let mut record = Record::new::<Error>(info, &self.schedule, |flops_per_second| {
            self.predicted(&self.work(flops_per_second))
        })?;
        record.cuts = Some(self.cuts(config)?);
        record.hosts = self.hosts();
        Ok(record)
    }

    /// Where each worker of this replica is, if there are several processes.
    fn hosts(&self) -> Vec<String> {
        let Some(world) = self.world.as_ref().filter(|world| world.ranks() > 1) else {
            return Vec::new();
        };
        let place = |worker| {
            let rank = self.rank_of(worker);
            format!("{}, rank {rank}", world.host(rank))
        };
        (0..self.schedule.devices()).map(place).collect()
    }

    fn info(&self, config: &TrainConfig) -> RunInfo {
        let flops = self.costs.flops();
        let limit_bytes = match *config.pipeline.remat {
            Policy::Budget(Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        let stage = |(stage, layers): (usize, Range<usize>)| {
            let memory = &self.memory[stage];
            let own = flops[layers.clone()].iter();
            StageInfo {
                recomputed: self.recomputed(stage, &layers),
                limit_bytes,
                names: self.names(&layers),
                flops: own.fold(0, |sum, &flops| sum.saturating_add(flops)),
                layers: layers.len(),
                fixed_bytes: memory.values + memory.gradients + memory.optimizer,
                peak_bytes: memory.peak(),
            }
        };
        RunInfo {
            machine: Machine {
                system: std::env::consts::OS.to_owned(),
                architecture: std::env::consts::ARCH.to_owned(),
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                threads: config.pipeline.threads.get(),
                memory: machine::memory(),
            },
            devices: self.devices.iter().map(ToString::to_string).collect(),
            parameter_bytes: self.parameter_bytes,
            stages: self.cut().into_iter().enumerate().map(stage).collect(),
        }
    }

    /// The recomputed fraction of a stage's forward pass, as runs of micro-batches.
    fn recomputed(&self, stage: usize, layers: &Range<usize>) -> Vec<(usize, f64)> {
        let share = |m: usize| {
            let costs = &self.costs.of(m)[layers.clone()];
            let forward = |layers: Range<usize>| -> f64 {
                costs[layers].iter().map(|cost| cost.forward as f64).sum()
            };
            let runs = self.table.kept(stage, m).runs(layers.len());
            let recomputed = runs.into_iter().filter(|run| !run.kept);
            // Nothing needs the outputs of the last layer.
            let again = recomputed.map(|run| {
                let last = run.layers.end - 1;
                forward(run.layers.start..last) + costs[last].recomputed() as f64
            });
            let again: f64 = again.sum();
            let whole = forward(0..costs.len());
            if whole > 0.0 {
                (again / whole).min(1.0)
            } else {
                0.0
            }
        };
        StageInfo::recomputed_runs((0..self.schedule.micro_batches()).map(share))
    }
}
