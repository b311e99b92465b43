//! The speed of this machine: measured, by the model of a GPU, by a data sheet, or estimated.

use std::path::{Path, PathBuf};

use gpipe_remat::{ModelCosts, Rates, Times, Work};
use gpipe_report::{Basis, numbers};
use gpipe_tensor::DeviceId;

use super::kinds::{Kind, Kinds};
use super::measurements::Profile;
#[cfg(feature = "cuda")]
use super::on_paper;
use super::options::{ProfileOptions, ProfileProgress};
use super::{file, measure};
use crate::config::{Count, Size, TrainConfig};
use crate::error::{Error, Result};
use crate::known_gpus::{self, KnownGpu};
use crate::setup::{self, Setup};
use crate::{machine, precision};

/// Efficiency of each additional thread of an operation, where it is not measured.
const EFFICIENCY: f64 = 0.9;
/// An operation as a share of its layer's forward pass, where it is not measured: two products of matrices, as in
/// attention and in a perceptron, take most of the time.
const OPERATION: f64 = 0.5;

/// The speed of this machine.
#[derive(Debug)]
pub enum Speed {
    /// An estimate: the speed of one thread in matrix products and in sums.
    Estimate(Rates),
    /// The peaks of known GPUs, of which none was measured.
    Predicted(Peaks),
    /// Times of the layers by a model of a GPU's kernels, of which none was measured.
    Modelled(Box<Modelled>),
    /// Measured times of the layers.
    Measured(Box<Measured>),
}

/// GPUs of one kind by their data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// The kind.
    pub gpu: &'static KnownGpu,
    /// What a plan counts on.
    pub rates: Rates,
    /// The number of GPUs.
    pub devices: usize,
}

/// The layers of a model with their times on GPUs of one kind, by a model of the GPU.
#[derive(Debug)]
pub struct Modelled {
    /// The kind of GPU.
    pub gpu: &'static KnownGpu,
    /// The number of GPUs.
    pub devices: usize,
    kinds: Kinds,
    profile: Profile,
}

/// The layers of a model with their measured times.
#[derive(Debug)]
pub struct Measured {
    kinds: Kinds,
    profile: Profile,
    path: PathBuf,
}

impl Speed {
    /// The speed for micro-batches of these sizes in samples: measured now if `options` say so, else from
    /// the profile file if it covers the model and the sizes, else estimated in a tenth of a second.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a measurement where a GPU is listed; [`Error::Input`] if the layers cannot be
    /// built; [`Error::Run`] if a measurement fails or the file cannot be written.
    pub fn of(
        config: &TrainConfig,
        options: ProfileOptions<'_>,
        sizes: &[usize],
        progress: &mut dyn FnMut(ProfileProgress),
    ) -> Result<Self> {
        let ProfileOptions { path, measure, .. } = options;
        let layers = setup::layers(config)?;
        let kinds = Kinds::of(&layers, *config.run.dtype, setup::input(config))?;
        let here = Profile::here(config);
        let devices = &config.pipeline.devices;
        let workers = usize::try_from(devices.workers()).unwrap_or(usize::MAX);
        let devices = devices.of_workers(workers.min(1 << 16));
        // A profile is one of processors.
        let is_for_others = devices.iter().any(|&id| id != DeviceId::Cpu);
        let found = match is_for_others {
            true => Ok(None),
            false => file::read(path, &here),
        };
        if measure {
            if is_for_others {
                return Err(Error::invalid(
                    "--profile measures processors only: leave it out, or use `pipeline.devices = cpu`",
                ));
            }
            check_memory(config, sizes)?;
            progress(ProfileProgress::Measuring {
                kinds: kinds.list.len(),
                sizes: sizes.to_vec(),
            });
            let mut profile = found.ok().flatten().unwrap_or(here);
            measure::measure(config, &kinds, sizes, &mut profile)?;
            if !options.is_beside {
                file::write(path, &profile)?;
            }
            return Ok(Self::measured(kinds, profile, path.to_owned()));
        }
        let fault = match found {
            Ok(Some(profile)) if profile.covers(&kinds, sizes) => {
                return Ok(Self::measured(kinds, profile, path.to_owned()));
            }
            Ok(Some(profile)) if profile.knows(&kinds) => {
                Some(format!("no micro-batches of {} samples", joined(sizes)))
            }
            Ok(_) => None,
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            let path = path.to_owned();
            progress(ProfileProgress::Unused { path, fault });
        }
        if let Some(gpu) = known_gpus::of_devices(&devices) {
            let pipeline = &config.pipeline;
            let devices = pipeline.devices.gpus(devices.len()).unwrap_or(1);
            return Self::predicted(config, gpu, devices, (kinds, here), sizes);
        }
        if devices.iter().any(|id| matches!(id, DeviceId::Known(_))) {
            return Err(Error::invalid(format!(
                "`pipeline.devices = {}`: devices of several kinds: a plan is for GPUs of one, such as cuda:h200*4",
                config.pipeline.devices
            )));
        }
        let rows = config.data.seq_len.get();
        let largest = sizes.iter().copied().max().unwrap_or(1);
        // A plan without the unit for bf16 is for this machine all the same, with a warning.
        let host = precision::host(config, 1, precision::products(config, false));
        let rates = machine::rates(
            rows.saturating_mul(largest),
            config.model.config().widest(),
            &host.map_err(Error::input)?,
        )?;
        Ok(Self::Estimate(rates))
    }

    /// By the model of a GPU's kernels.
    #[cfg(feature = "cuda")]
    fn predicted(
        config: &TrainConfig,
        gpu: &'static KnownGpu,
        devices: usize,
        (kinds, empty): (Kinds, Profile),
        sizes: &[usize],
    ) -> Result<Self> {
        let profile = on_paper::model(config, &kinds, sizes, gpu, empty)?;
        Ok(Self::Modelled(Box::new(Modelled {
            gpu,
            devices,
            kinds,
            profile,
        })))
    }

    /// By the data sheet: this build has no kernels.
    #[cfg(not(feature = "cuda"))]
    fn predicted(
        config: &TrainConfig,
        gpu: &'static KnownGpu,
        devices: usize,
        _: (Kinds, Profile),
        _: &[usize],
    ) -> Result<Self> {
        Ok(Self::Predicted(Peaks {
            gpu,
            rates: known_gpus::rates(gpu, *config.run.dtype),
            devices,
        }))
    }

    fn measured(kinds: Kinds, profile: Profile, path: PathBuf) -> Self {
        Self::Measured(Box::new(Measured {
            kinds,
            profile,
            path,
        }))
    }

    /// What predictions by it rest on.
    pub fn basis(&self) -> Basis {
        match self {
            Self::Estimate(_) => Basis::Estimate,
            Self::Predicted(_) => Basis::DataSheet,
            Self::Modelled(_) => Basis::Model,
            Self::Measured(_) => Basis::Profile,
        }
    }

    /// The number of threads or GPUs that `workers` workers share: `threads` on a processor; `None` where each worker has a
    /// GPU of its own.
    pub fn shared(&self, threads: usize, workers: usize) -> Option<usize> {
        let devices = match self {
            Self::Predicted(peaks) => peaks.devices,
            Self::Modelled(modelled) => modelled.devices,
            Self::Estimate(_) | Self::Measured(_) => return Some(threads),
        };
        (devices < workers).then_some(devices)
    }

    /// The times of the layers for the first micro-batch, on up to `threads` threads, or on one of the GPUs.
    pub fn times(&self, costs: &ModelCosts, threads: usize) -> Times {
        let (measured, rates) = match self {
            Self::Estimate(rates) => (None, *rates),
            // A worker that is busy alone gains nothing by the GPUs of others.
            Self::Predicted(peaks) => {
                return Times::of_rates(costs, peaks.rates).with_cores(peaks.devices, 0.0);
            }
            Self::Modelled(modelled) => return modelled.times(costs),
            Self::Measured(measured) => {
                let Measured { kinds, profile, .. } = &**measured;
                (profile.times(kinds, costs.samples(0)), Rates::of_flops(1.0))
            }
        };
        let estimate = || {
            let times = Times::of_rates(costs, rates).with_gathered(costs, rates.bytes);
            let times = times.with_cores(threads, EFFICIENCY);
            times.with_operations(OPERATION)
        };
        measured.unwrap_or_else(estimate)
    }
}

impl Modelled {
    /// The times of the layers for the first micro-batch, on one of the GPUs.
    fn times(&self, costs: &ModelCosts) -> Times {
        let times = self.profile.times(&self.kinds, costs.samples(0));
        let times = times.unwrap_or_default();
        times.with_cores(self.devices, 0.0)
    }
}

/// The times of the layers of one kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KindTimes {
    /// The layers' name with `*` for the numbers that differ.
    pub layer: String,
    /// The number of layers of the kind.
    pub layers: usize,
    /// FLOPs of all passes of one layer.
    pub flops: u64,
    /// Seconds of each pass.
    pub work: Work,
}

impl Measured {
    /// The file of the profile.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Threads that were busy together.
    pub fn threads(&self) -> usize {
        self.profile.threads
    }

    /// Seconds of overhead per action.
    pub fn action_seconds(&self) -> f64 {
        self.profile.action_seconds
    }

    /// The times of every kind for the first micro-batch, on `threads` threads.
    pub fn kinds(&self, costs: &ModelCosts, threads: usize) -> Vec<KindTimes> {
        let Some(times) = self.profile.times(&self.kinds, costs.samples(0)) else {
            return Vec::new();
        };
        let of_kind = |kind: &Kind| KindTimes {
            layer: kind.name.clone(),
            layers: kind.count,
            flops: costs.of(0)[kind.layer].flops(),
            work: times.on(threads)[kind.layer],
        };
        self.kinds.list.iter().map(of_kind).collect()
    }
}

/// Refuses to measure layers that need more memory than there is: the workers hold all of them, and what each layer keeps
/// of a micro-batch.
fn check_memory(config: &TrainConfig, sizes: &[usize]) -> Result<()> {
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let mut alone = config.clone();
    alone.pipeline = config.pipeline.single().map_err(Error::invalid)?;
    alone.data.batch_size = Size::try_from(largest as i64).map_err(Error::invalid)?;
    (alone.pipeline.micro_batches, alone.pipeline.groups) = (Size::ONE, Size::ONE);
    alone.pipeline.before = Count::ZERO;
    let needed = Setup::new(&alone)?.memory[0].peak();
    match machine::memory_to_come().filter(|&available| needed > available) {
        None => Ok(()),
        Some(available) => Err(Error::invalid(format!(
            "--profile needs {} for the layers and a micro-batch of {}, but this machine has {}: leave it out",
            numbers::bytes(needed),
            numbers::counted(largest as u64, "sample"),
            numbers::bytes(available)
        ))),
    }
}

fn joined(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Setting};

    /// Processor time of a step of bench-a on one thread, in units of that with one micro-batch, as it was measured on an
    /// AVX-512 processor on 2026-11-23: a few percent of noise, and no factor of two.
    #[test]
    fn estimates_have_the_fixed_cost_of_micro_batches() {
        let rates = Rates {
            flops: 50e9,
            bytes: 5e9,
            action: 15e-6,
        };
        let seconds = |micro_batches: i64| {
            let settings = [
                Setting::new("model.name", "bench-a"),
                Setting::new("pipeline.stages", 1),
                Setting::new("pipeline.threads", 1),
                Setting::new("pipeline.micro_batches", micro_batches),
                Setting::new("pipeline.remat", "keep"),
            ];
            let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
            let setup = Setup::new(&config).unwrap();
            setup
                .step_seconds(&Times::of_rates(&setup.costs, rates))
                .unwrap()
        };
        let one = seconds(1);
        let runs = [(2, 0.93), (4, 0.95), (8, 0.97), (16, 0.94), (32, 1.05)];
        let mut last = one;
        for (micro_batches, measured) in runs {
            let step = seconds(micro_batches);
            let ratio = step / one;
            assert!(
                (ratio / measured - 1.0).abs() < 0.15,
                "{micro_batches}: {ratio}"
            );
            assert!(step > last, "{micro_batches}");
            last = step;
        }
    }
}
