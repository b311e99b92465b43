//! What is known of a run before it begins: how long its workers would idle, and how long a step takes.

use gpipe_remat::{StageMemory, Times, simulator_costs};
use gpipe_report::numbers;
use gpipe_sched::{Costs, Timeline, simulate, simulate_shared};
use gpipe_tensor::DeviceId;

use super::Setup;
use crate::error::{Error, Result};

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

impl Setup {
    /// What is known before the run begins.
    pub fn forecast(&self) -> Result<Forecast> {
        let stages = self.schedule.stages();
        let ideal =
            simulate(&self.schedule, &Costs::even(stages, 1.0, 2.0)).map_err(Error::input)?;
        let flops = Times::of_flops(&self.costs, 1.0);
        let costs = self.simulator_costs(&flops);
        let free = simulate(&self.schedule, &costs[0]).map_err(Error::input)?;
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
        simulate_shared(&self.schedule, &costs, processors).map_err(Error::input)
    }

    fn simulator_costs(&self, times: &Times) -> Vec<Costs> {
        simulator_costs(&self.costs, times, &self.cut(), &self.schedule, &self.table)
    }

    /// The threads that workers share, if they do.
    fn processors(&self) -> Option<usize> {
        let on_processor = self.devices.iter().all(|&id| id == DeviceId::Cpu);
        on_processor.then_some(self.threads)
    }
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
