//! Predictions of idle time, step time and memory.

use std::borrow::Cow;

use gpipe_remat::{MessageBytes, Rates, StageMemory, Times, simulator_costs};
use gpipe_report::{PlannedPortal, numbers};
use gpipe_sched::{Costs, Portal, Timeline, simulate, simulate_shared};
use gpipe_tensor::DeviceId;

use super::Setup;
use crate::error::{Error, Result};

/// Number of portals whose stages the text names.
const PORTALS_NAMED: usize = 4;

/// Predictions of a run. Lists have one entry per stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Forecast {
    /// The number of parameters; tied ones count once.
    pub parameters: u64,
    /// The number of parameters that are not frozen; tied ones count once.
    pub trained: u64,
    /// Bytes per parameter in training: value, gradient and optimizer state.
    pub parameter_bytes: [u64; 3],
    /// The number of workers.
    pub workers: usize,
    /// CPU threads shared by the workers.
    pub threads: usize,
    /// GPUs shared by the workers, where all of them are on GPUs.
    pub gpus: Option<usize>,
    /// Layers of each stage.
    pub cut: Vec<usize>,
    /// Maximum number of micro-batches in flight on each stage.
    pub in_flight: Vec<usize>,
    /// Peak bytes of each stage.
    pub peaks: Vec<u64>,
    /// Idle fraction of the workers' time for equal stages without recomputation:
    /// (K − 1) / (M + K − 1) under gpipe and 1f1b, for K stages and M micro-batches.
    pub ideal_bubble: f64,
    /// Idle fraction for the configured cut and rematerialization.
    pub bubble: f64,
    /// Idle fraction for the configured threads or GPUs, if workers share them.
    pub bubble_here: f64,
    /// Where tensors go past whole stages.
    pub portals: Vec<PlannedPortal>,
    /// Number of first layers that are frozen and have no backward pass; `None` where nothing is frozen.
    pub forward_only_layers: Option<usize>,
    /// Bytes of messages that a rank holds at most, which no stage counts; `None` without other ranks and replicas.
    pub message_bytes: Option<u64>,
    /// Bytes of the host's memory, beside the stages, for the copies that checkpoints are written from; 0 where none is saved.
    pub checkpoint_bytes: u64,
}

impl Setup {
    /// Predicts idle time and memory.
    ///
    /// # Errors
    /// [`Error::Input`] if the schedule cannot be simulated.
    pub fn forecast(&self) -> Result<Forecast> {
        let stages = self.schedule.stages();
        let ideal =
            simulate(&self.schedule, &Costs::even(stages, 1.0, 2.0)).map_err(Error::input)?;
        let work = self.work(1.0);
        let costs = self.simulator_costs(&work);
        let free = simulate(&self.schedule, &costs[0]).map_err(Error::input)?;
        let here = self.timeline(&work)?;
        Ok(Forecast {
            parameters: self.parameters,
            trained: self.trained,
            parameter_bytes: self.parameter_bytes,
            threads: self.threads,
            gpus: self.gpus,
            cut: self.partition.sizes(),
            in_flight: (0..stages).map(|stage| self.schedule.live(stage)).collect(),
            peaks: self.memory.iter().map(StageMemory::peak).collect(),
            ideal_bubble: ideal.bubble(),
            bubble: free.bubble(),
            bubble_here: here.bubble(),
            workers: free.devices(),
            portals: self.planned_portals(),
            forward_only_layers: Some(self.costs.first_trained())
                .filter(|&layers| layers > 0 && self.trained < self.parameters),
            message_bytes: self.messages.iter().map(MessageBytes::peak).max(),
            checkpoint_bytes: self.checkpoint_bytes(),
        })
    }

    /// The portals, with their bytes.
    fn planned_portals(&self) -> Vec<PlannedPortal> {
        let portals = self.table.portals();
        let planned = |portal: Portal| PlannedPortal {
            from: portal.from,
            to: portal.to,
            step_bytes: portals.step_bytes_of(&self.costs, portal),
            transit_bytes: portals.transit_bytes_of(&self.costs, &self.schedule, portal),
        };
        portals.ends().into_iter().map(planned).collect()
    }

    /// The work of the layers by `pipeline.cost_model`, at this many FLOPs a second.
    pub(super) fn work(&self, flops_per_second: f64) -> Times {
        Times::of_rates(
            &self.costs,
            Rates::of_model(self.cost_model, flops_per_second),
        )
    }

    /// The predicted seconds of a step, for these times of the layers.
    ///
    /// # Errors
    /// [`Error::Input`] if the schedule cannot be simulated.
    pub fn step_seconds(&self, times: &Times) -> Result<f64> {
        let times = &*self.on_ranks(times);
        let device_of = self.schedule.device_of();
        let update = times.update(&self.cut(), device_of, |_| 1.0, self.processors());
        Ok(self.timeline(times)?.makespan() + update)
    }

    /// The predicted timeline of a step, with the memory of each worker.
    ///
    /// # Errors
    /// [`Error::Input`] if the schedule cannot be simulated.
    pub fn predicted(&self, times: &Times) -> Result<Timeline> {
        let (cut, schedule) = (self.cut(), &self.schedule);
        let held =
            gpipe_remat::predict_held(&self.memory, &self.costs, &cut, schedule, &self.table);
        Ok(self.timeline(times)?.with_held(&held))
    }

    /// The timeline on the configured threads.
    fn timeline(&self, times: &Times) -> Result<Timeline> {
        let costs = self.simulator_costs(&self.on_ranks(times));
        let processors = self.processors().unwrap_or(usize::MAX);
        simulate_shared(&self.schedule, &costs, processors).map_err(Error::input)
    }

    fn simulator_costs(&self, times: &Times) -> Vec<Costs> {
        let costs = simulator_costs(&self.costs, times, &self.cut(), &self.schedule, &self.table);
        let costs = costs.into_iter();
        costs
            .map(|costs| costs.with_links(self.links.clone()))
            .collect()
    }

    /// The threads or the GPUs that all workers share; `None` where some workers are on processors and others on GPUs, or in
    /// another process.
    fn processors(&self) -> Option<usize> {
        let on_processor = self.devices.iter().all(|&id| id == DeviceId::Cpu);
        match on_processor && self.ranks == 1 {
            true => Some(self.threads),
            false => self.gpus.filter(|_| self.ranks == 1),
        }
    }

    /// The times on the threads of a worker, of which no other process has use.
    fn on_ranks<'a>(&self, times: &'a Times) -> Cow<'a, Times> {
        match self.ranks {
            1 => Cow::Borrowed(times),
            ranks => Cow::Owned(times.of_share(self.threads * ranks / self.schedule.devices())),
        }
    }
}

impl Forecast {
    /// The idle fractions as text.
    pub fn bubbles(&self) -> String {
        let (cut, here) = (
            numbers::percent(self.bubble),
            numbers::percent(self.bubble_here),
        );
        let shared = match self.gpus {
            Some(gpus) => numbers::counted(gpus as u64, "GPU"),
            None => numbers::counted(self.threads as u64, "thread"),
        };
        let shared = match here == cut {
            true => String::new(),
            false => format!(" ({here} with {} workers on {shared})", self.workers),
        };
        format!(
            "predicted {cut}{shared}; ideal {}",
            numbers::percent(self.ideal_bubble)
        )
    }

    /// The frozen layers without backward pass as text; none if there are none.
    pub fn frozen(&self) -> Option<String> {
        let first = self.forward_only_layers?;
        let ends = self.cut.iter().scan(0, |end, layers| {
            *end += layers;
            Some(*end)
        });
        let stages = match ends.take_while(|&end| end <= first).count() {
            0 => String::new(),
            stages => format!(
                "; forward only: {}",
                numbers::counted(stages as u64, "stage")
            ),
        };
        let layers = numbers::counted(first as u64, "layer");
        Some(format!(
            "no backward pass through the first {layers}{stages}"
        ))
    }

    /// The bytes of messages as text; none without other ranks and replicas.
    pub fn messages(&self) -> Option<String> {
        let bytes = numbers::bytes(self.message_bytes?);
        Some(format!("{bytes} at most on a rank, beside its stages"))
    }

    /// The bytes of copies for checkpoints as text; none where none is saved.
    pub fn copies(&self) -> Option<String> {
        let bytes = Some(self.checkpoint_bytes).filter(|&bytes| bytes > 0)?;
        Some(format!(
            "and {} on the host for copies of checkpoints",
            numbers::bytes(bytes)
        ))
    }

    /// The portals as text; none if no tensor passes a stage.
    pub fn portals(&self) -> Option<String> {
        let ends = self.portals.iter().take(PORTALS_NAMED);
        let mut ends: Vec<String> = ends
            .map(|one| format!("{} to {}", one.from, one.to))
            .collect();
        if let more @ 1.. = self.portals.len().saturating_sub(PORTALS_NAMED) {
            ends.push(format!("and {more} more"));
        }
        let sum = |bytes: fn(&PlannedPortal) -> u64| {
            let bytes = self.portals.iter().map(bytes);
            numbers::bytes(bytes.fold(0, u64::saturating_add))
        };
        (!ends.is_empty()).then(|| {
            format!(
                "stage {}: {} a step, at most {} in transit",
                ends.join(", "),
                sum(|one| one.step_bytes),
                sum(|one| one.transit_bytes),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use gpipe_report::MeasuredLink;
    use gpipe_sched::{InMemory, World};

    use super::*;
    use crate::config::{Overrides, Setting};

    /// Two stages on two ranks of a thread each: a micro-batch takes longer by what its activations and gradients take on
    /// the way, and than in one process, where a worker lends its thread to the other.
    #[test]
    fn a_step_waits_for_the_links_between_ranks() {
        let of = |devices: &str, ranks: usize, threads: i64| {
            let settings = [
                Setting::new("model.name", "gpt-nano"),
                Setting::new("pipeline.devices", devices),
                Setting::new("pipeline.stages", 2),
                Setting::new("pipeline.threads", threads),
                Setting::new("pipeline.micro_batches", 1),
                Setting::new("pipeline.schedule", "1f1b"),
            ];
            Overrides::new()
                .layer(settings)
                .unwrap()
                .on_ranks(ranks, 1)
                .resolve()
                .unwrap()
        };
        let config = of("cpu", 2, 1);
        let worlds: Vec<_> = InMemory::new(2).into_iter().map(World::new).collect();
        let link = |bytes_per_second: f64| MeasuredLink {
            from: 0,
            to: 1,
            hosts: ["a".to_owned(), "b".to_owned()],
            latency_seconds: 0.5,
            bytes_per_second,
        };
        let seconds = |links: &[MeasuredLink]| {
            let setup = Setup::over(&config, Some(&worlds[0]))
                .unwrap()
                .with_links(links);
            let times = Times::of_flops(&setup.costs, 1e9).with_cores(1, 0.9);
            (setup.step_seconds(&times).unwrap(), setup)
        };
        let (free, setup) = seconds(&[]);
        let bytes = setup
            .table
            .portals()
            .flow_bytes(&setup.costs, 1, setup.cut()[1].start);
        let (slow, _) = seconds(&[link(1e6)]);
        let expected = free + 2.0 * 0.5 + (bytes[0] + bytes[1]) as f64 / 1e6;
        assert!(
            (slow / expected - 1.0).abs() < 1e-9,
            "{slow}, not {expected}"
        );
        let alone = Setup::new(&of("cpu*2", 1, 2)).unwrap();
        let times = Times::of_flops(&alone.costs, 1e9).with_cores(2, 0.9);
        let lent = alone.step_seconds(&times).unwrap();
        assert!(lent < 0.6 * free, "{lent}, {free}");
    }

    #[test]
    fn workers_that_share_a_gpu_take_turns() {
        let on = |devices: &str| {
            let settings = [
                Setting::new("model.name", "gpt-nano"),
                Setting::new("pipeline.devices", devices),
                Setting::new("pipeline.stages", 2),
                Setting::new("pipeline.remat", "keep"),
            ];
            let config = Overrides::new().layer(settings).unwrap().resolve();
            let setup = Setup::new(&config.unwrap()).unwrap();
            let times = Times::of_flops(&setup.costs, 1e9);
            let told = setup.forecast().unwrap().bubbles();
            (setup.step_seconds(&times).unwrap(), told)
        };
        let [(shared, told), (apart, free), (planned, _), (one, _)] =
            ["cuda:0*2", "cuda:0,cuda:1", "cuda:h100*2", "cuda:h100"].map(on);
        assert_eq!(one, shared);
        assert!(
            shared > 1.7 * apart && apart == planned,
            "{shared} {apart} {planned}"
        );
        assert!(told.contains(" with 2 workers on 1 GPU)"), "{told}");
        assert!(!free.contains("workers on"), "{free}");
    }
}
