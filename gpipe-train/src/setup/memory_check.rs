//! Checks of the predicted memory against limits and devices.

use gpipe_data::DIGITS;
use gpipe_remat::{Bytes, Policy, StageMemory};
use gpipe_report::numbers;
use gpipe_tensor::{DeviceId, KnownGpu, find_cuda};

use super::{Setup, input};
use crate::config::{Devices, Named, Size, TrainConfig};
use crate::error::{Error, Result, one_line};
use crate::{machine, precision};

impl Setup {
    /// Checks the predicted memory against `pipeline.memory`, GPUs, and this machine, unless GPUs are named that may be
    /// elsewhere.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not fit; the message has the needed bytes.
    pub fn check_memory(&self, config: &TrainConfig) -> Result<()> {
        if let Some(limit) = config.pipeline.memory.bytes() {
            let (worker, needed) = self.largest_worker(StageMemory::peak);
            if needed > limit {
                let budget = self.fitting_budget(config, limit);
                let budget = budget.map_or(String::new(), |budget| {
                    format!(", or `pipeline.remat = {budget}`")
                });
                return Err(Error::invalid(format!(
                    "worker {worker} needs {} but `pipeline.memory` is {}: use `pipeline.memory = {}`{budget}",
                    numbers::bytes(needed),
                    Bytes(limit),
                    Bytes(needed).rounded_up(),
                )));
            }
        }
        self.check_known_gpus(config)?;
        let is_known = |id: &DeviceId| matches!(id, DeviceId::Known(_));
        if self.devices.iter().any(is_known) {
            return Ok(());
        }
        let (copies, batch) = (self.checkpoint_bytes(), batch_bytes(config));
        // On ranks of other hosts a device has the same name.
        let needs = |device, ranks: &[usize]| {
            let stages = self.memory.iter().zip(&self.devices);
            let stages = stages.zip(self.schedule.device_of());
            let stages = stages.filter(|&((_, &id), _)| id == device);
            stages.fold([0_u64; 2], |[fixed, peak], ((stage, _), &worker)| {
                let own = worker * self.ranks / self.schedule.devices();
                let times = ranks.iter().filter(|&&rank| rank == own).count() as u64;
                [
                    fixed.saturating_add(stage.fixed().saturating_mul(times)),
                    peak.saturating_add(stage.peak().saturating_mul(times)),
                ]
            })
        };
        let here = self.ranks_here();
        let [fixed, peak] = needs(DeviceId::Cpu, &here);
        let messages = here.iter().filter_map(|&rank| self.messages.get(rank));
        let peak = messages.fold(peak, |sum, bytes| sum.saturating_add(bytes.peak()));
        let on_host = [fixed, peak.saturating_add(batch)];
        let available = machine::memory_to_come();
        enough(config, "this machine", on_host, copies, available)?;
        let own = match &self.world {
            Some(world) => vec![world.rank() % self.ranks],
            None => here,
        };
        let devices = find_cuda().map_or_else(|_| Vec::new(), |found| found.devices);
        for device in devices {
            let (name, needed) = (device.id.to_string(), needs(device.id, &own));
            enough(config, &name, needed, 0, Some(device.memory_bytes))?;
        }
        Ok(())
    }

    /// What a run would be refused for on this machine, each as one line: memory, CUDA devices of stages, a processor's unit
    /// for bf16, and, unless the run `resumes`, the weights that it begins with.
    pub fn faults(&mut self, config: &TrainConfig, resumes: bool) -> Vec<String> {
        let mut faults: Vec<String> = Vec::new();
        faults.extend(
            self.check_memory(config)
                .err()
                .map(|fault| one_line(&fault)),
        );
        let missing = machine::missing_gpus(self.devices.iter().copied()).into_iter();
        faults.extend(missing.map(|id| {
            format!(
                "device {id} is not here: use `pipeline.devices = cpu`, or plan for a GPU by its name, such as \
                 `pipeline.devices = cuda:h100`"
            )
        }));
        let host = precision::host(config, 1, precision::products(config, true));
        faults.extend(host.err().map(|fault| fault.to_string()));
        if !resumes && let Err(fault) = self.find_weights(config) {
            faults.push(one_line(&fault));
        }
        faults
    }

    /// Bytes of the host's memory beside stages and messages: copies for checkpoints, and a batch.
    pub(crate) fn bytes_beside_stages(&self, config: &TrainConfig) -> u64 {
        self.checkpoint_bytes().saturating_add(batch_bytes(config))
    }

    /// Bytes of the copies that a checkpoint is written from, on the host, while training goes on: the value of each
    /// parameter, and the optimizer states of those that train. 0 where nothing is saved.
    pub fn checkpoint_bytes(&self) -> u64 {
        if !self.trains || !self.saves {
            return 0;
        }
        let states = self.optimizer.state_names().len() as u64;
        let copied = self.trained.saturating_mul(states);
        copied.saturating_add(self.parameters).saturating_mul(4)
    }

    /// Checks the predicted memory against GPUs that are listed by name.
    fn check_known_gpus(&self, config: &TrainConfig) -> Result<()> {
        let Some(full) = self.full_gpu(config) else {
            return Ok(());
        };
        let (id, needed, memory) = full;
        let refused = enough(config, &id.to_string(), needed, 0, Some(memory));
        refused.map_err(|fault| match self.fitting_gpus(config, id) {
            Some(gpus) => Error::invalid(format!(
                "{fault}, or `pipeline.devices = {id}*{gpus}` with `pipeline.stages = {}`",
                gpus * self.schedule.stages() / self.schedule.devices()
            )),
            None => fault,
        })
    }

    /// Of the GPUs listed by name that have too little memory, the one with the highest need: its name, the bytes that are
    /// always there and those at the peak, and what it has. Each has a worker, or all if one name stands for every stage.
    fn full_gpu(&self, config: &TrainConfig) -> Option<(DeviceId, [u64; 2], u64)> {
        let is_shared = config.pipeline.devices.repeated().is_some();
        let stages = || {
            let stages = self.memory.iter().zip(&self.devices);
            stages.zip(self.schedule.device_of())
        };
        let needs = stages().filter_map(|((_, &id), &worker)| {
            let DeviceId::Known(name) = id else {
                return None;
            };
            let own = stages().filter(|&(_, &other)| is_shared || other == worker);
            let [fixed, peak] = own.fold([0_u64; 2], |[fixed, peak], ((stage, _), _)| {
                [
                    fixed.saturating_add(stage.fixed()),
                    peak.saturating_add(stage.peak()),
                ]
            });
            let memory = KnownGpu::of_name(name)?.memory;
            (peak > memory).then_some((id, [fixed, peak], memory))
        });
        needs.max_by_key(|&(_, [_, peak], _)| peak)
    }

    /// A number of GPUs of this name, a worker each, with which the model fits, if doubling leads to one.
    fn fitting_gpus(&self, config: &TrainConfig, id: DeviceId) -> Option<usize> {
        let chunks = self.schedule.stages() / self.schedule.devices();
        let most = self.costs.layers() / chunks;
        let doubled = std::iter::successors(Some(2 * self.schedule.devices()), |gpus| {
            gpus.checked_mul(2)
        });
        let mut counts = doubled.take_while(|&gpus| gpus <= most);
        counts.find(|&gpus| {
            let mut other = config.clone();
            let Ok(stages) = Size::try_from((gpus * chunks) as i64) else {
                return false;
            };
            other.pipeline.stages = stages;
            other.pipeline.devices = Named::of(Devices::of_ids(vec![id; gpus]));
            Self::new(&other).is_ok_and(|setup| setup.full_gpu(&other).is_none())
        })
    }

    /// The ranks on this host, of all replicas, each as counted from the first of its replica.
    fn ranks_here(&self) -> Vec<usize> {
        let Some(world) = &self.world else {
            return vec![0];
        };
        let host = world.host(world.rank());
        let here = (0..world.ranks()).filter(|&rank| world.host(rank) == host);
        here.map(|rank| rank % self.ranks).collect()
    }

    /// The worker with the highest sum of these bytes, and the sum.
    fn largest_worker(&self, bytes: fn(&StageMemory) -> u64) -> (usize, u64) {
        let mut workers = vec![0_u64; self.schedule.devices()];
        for (memory, &worker) in self.memory.iter().zip(self.schedule.device_of()) {
            workers[worker] = workers[worker].saturating_add(bytes(memory));
        }
        let workers = workers.into_iter().enumerate();
        workers.max_by_key(|&(_, needed)| needed).unwrap_or((0, 0))
    }

    /// The budget of each stage with which every worker keeps to the limit, if there is one.
    fn fitting_budget(&self, config: &TrainConfig, limit: u64) -> Option<Policy> {
        // No budget helps where the bytes that are always there do not fit.
        if !self.trains || self.largest_worker(StageMemory::fixed).1 > limit {
            return None;
        }
        let stages = self.schedule.stages() / self.schedule.devices();
        let budget = Policy::Budget(Bytes(limit / stages.max(1) as u64));
        let mut other = config.clone();
        other.pipeline.remat = Named::of(budget);
        let found = Self::new(&other).ok()?;
        (found.largest_worker(StageMemory::peak).1 <= limit).then_some(budget)
    }
}

/// Bytes of a batch: samples and targets, with four bytes per token or channel of a pixel.
fn batch_bytes(config: &TrainConfig) -> u64 {
    let input: u64 = input(config)(1)
        .iter()
        .map(|flow| flow.shape.elements().map_or(u64::MAX, |n| n as u64))
        .sum();
    let sample = match config.model.is_classifier() {
        true if config.learns_masks() => {
            let pixels = config.sample_size() as u64;
            input.saturating_add(pixels.saturating_mul(pixels))
        }
        true => input.saturating_add(1),
        false => input.saturating_mul(2),
    };
    let samples = config.data.batch_size.u64();
    samples.saturating_mul(sample).saturating_mul(4)
}

/// Refuses a need beyond the available bytes; `fixed` bytes of it are the same for any batch. The `copies` for checkpoints come
/// on top.
pub(super) fn enough(
    config: &TrainConfig,
    place: &str,
    [fixed, needed]: [u64; 2],
    copies: u64,
    available: Option<u64>,
) -> Result<()> {
    let all = needed.saturating_add(copies);
    let Some(available) = available.filter(|&available| all > available) else {
        return Ok(());
    };
    let recompute = match *config.pipeline.remat {
        Policy::Stage => "",
        _ => ", or `pipeline.remat = stage`",
    };
    let images = match config.data.image_size {
        Some(_) if config.data.source != DIGITS => " or `data.image_size`",
        _ => "",
    };
    let mend = match config.model.is_classifier() {
        _ if fixed.saturating_add(copies) > available && config.lora.rank.get() > 0 => {
            "use a smaller model or a smaller `lora.rank`".to_owned()
        }
        _ if fixed.saturating_add(copies) > available => "use a smaller model".to_owned(),
        true => format!("use a smaller `data.batch_size`{images}{recompute}"),
        false => format!("use a smaller `data.batch_size` or `data.seq_len`{recompute}"),
    };
    let (of_copies, mend) = match copies {
        0 => (String::new(), mend),
        copies => (
            format!(
                ", {} of it for copies of checkpoints,",
                numbers::bytes(copies)
            ),
            match needed <= available {
                true => format!(
                    "use `run.keep = 0` to save none, or {}",
                    &mend["use ".len()..]
                ),
                false => mend,
            },
        ),
    };
    Err(Error::invalid(format!(
        "the run needs {}{of_copies} but {place} has {}: {mend}",
        numbers::bytes(all),
        numbers::bytes(available)
    )))
}
