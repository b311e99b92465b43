//! How long the layers of a model take on this machine: measured once, kept in a file beside the
//! configuration, and read by whoever predicts the time of a step.

mod empty;
mod file;
mod given;
mod kinds;
mod measure;

use std::path::{Path, PathBuf};

use gpipe_remat::{ModelCosts, Times, Work};
use gpipe_tensor::DeviceId;

use self::file::Profile;
use self::kinds::Kinds;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::machine;
use crate::setup;

/// How much of a further thread an operation makes use of, as far as nobody measured.
const EFFICIENCY: f64 = 0.9;

/// How fast this machine is.
pub enum Speed {
    /// FLOPs a second of one thread in matrix products; nothing else is known.
    Estimate(f64),
    /// The layers were measured.
    Measured(Box<Measured>),
}

/// How to come to know it.
#[derive(Clone, Copy, Debug)]
pub struct ProfileOptions<'a> {
    /// The file in which a profile is kept.
    pub path: &'a Path,
    /// Whether to measure now.
    pub measure: bool,
}

/// What is to be known while a speed is found out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProfileProgress {
    /// Kinds of layers are about to be measured in micro-batches of these sizes.
    Measuring {
        /// How many kinds.
        kinds: usize,
        /// Samples of a micro-batch.
        sizes: Vec<usize>,
    },
    /// There is a profile, which is not used.
    Unused {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
}

/// The layers of a model, and how long each takes.
pub struct Measured {
    kinds: Kinds,
    profile: Profile,
    path: PathBuf,
}

impl Speed {
    /// For micro-batches of these sizes: measured now if that is wanted, else by the profile beside the
    /// configuration if there is one that is good for this, else estimated.
    ///
    /// # Errors
    /// If the layers cannot be built, or measured where a GPU is listed.
    pub fn of(
        config: &TrainConfig,
        options: ProfileOptions<'_>,
        sizes: &[usize],
        progress: &mut dyn FnMut(ProfileProgress),
    ) -> Result<Self> {
        let ProfileOptions { path, measure } = options;
        let layers = setup::layers(config)?;
        let kinds = Kinds::of(&layers, *config.run.dtype, setup::input(config))?;
        let here = Profile::here(config);
        let found = file::read(path, &here);
        if measure {
            let devices = &config.pipeline.devices;
            let workers = usize::try_from(devices.workers()).unwrap_or(usize::MAX);
            if devices
                .of_workers(workers.min(1 << 16))
                .iter()
                .any(|&id| id != DeviceId::Cpu)
            {
                return Err(Error::invalid(
                    "--profile measures processors only: leave it away, or use `pipeline.devices = cpu`",
                ));
            }
            progress(ProfileProgress::Measuring {
                kinds: kinds.list.len(),
                sizes: sizes.to_vec(),
            });
            let mut profile = found.ok().flatten().unwrap_or(here);
            measure::measure(config, &kinds, sizes, &mut profile)?;
            file::write(path, &profile)?;
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
        let rows = config.data.seq_len.get();
        let largest = sizes.iter().copied().max().unwrap_or(1);
        let rate = machine::flops_per_second(
            rows.saturating_mul(largest),
            config.model.config().widest(),
            *config.run.instruction_set,
        )?;
        Ok(Self::Estimate(rate))
    }

    fn measured(kinds: Kinds, profile: Profile, path: PathBuf) -> Self {
        Self::Measured(Box::new(Measured {
            kinds,
            profile,
            path,
        }))
    }

    /// How long the layers take for the first micro-batch, on up to so many threads.
    pub fn times(&self, costs: &ModelCosts, threads: usize) -> Times {
        let measured = match self {
            Self::Estimate(_) => None,
            Self::Measured(measured) => {
                let Measured { kinds, profile, .. } = &**measured;
                profile.times(kinds, costs.samples(0))
            }
        };
        let rate = match self {
            Self::Estimate(rate) => *rate,
            Self::Measured(_) => 1.0,
        };
        let estimate = || Times::of_flops(costs, rate).with_cores(threads, EFFICIENCY);
        measured.unwrap_or_else(estimate)
    }
}

/// The times of the layers of one kind, for the table of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct KindTimes {
    /// The layers' name with `*` for the numbers that differ.
    pub layer: String,
    /// How many layers there are of the kind.
    pub layers: usize,
    /// FLOPs of all passes of one of them.
    pub flops: u64,
    /// Seconds of each pass.
    pub work: Work,
}

impl Measured {
    /// The file of the profile.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Threads that were busy at the same time.
    pub fn threads(&self) -> usize {
        self.profile.threads
    }

    /// Seconds of an action besides its layers.
    pub fn action_seconds(&self) -> f64 {
        self.profile.action_seconds
    }

    /// The times of every kind for the first micro-batch, on so many threads.
    pub fn kinds(&self, costs: &ModelCosts, threads: usize) -> Vec<KindTimes> {
        let Some(times) = self.profile.times(&self.kinds, costs.samples(0)) else {
            return Vec::new();
        };
        let of_kind = |kind: &kinds::Kind| KindTimes {
            layer: kind.name.clone(),
            layers: kind.count,
            flops: costs.of(0)[kind.layer].flops(),
            work: times.on(threads)[kind.layer],
        };
        self.kinds.list.iter().map(of_kind).collect()
    }
}

fn joined(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join(", ")
}

/// The sizes of the largest micro-batches, and of those some if they are many: times of others lie
/// between.
pub fn sizes(batch: usize, micro_batches: &[usize]) -> Vec<usize> {
    const MOST: usize = 6;
    let mut sizes: Vec<usize> = micro_batches
        .iter()
        .map(|&parts| batch.div_ceil(parts.max(1)))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    if let (Some(&least), Some(&most)) = (sizes.first(), sizes.last())
        && sizes.len() > MOST
    {
        let ratio = most as f64 / least as f64;
        let wanted = |i: usize| least as f64 * ratio.powf(i as f64 / (MOST - 1) as f64);
        let nearest = |wanted: f64| {
            let off = |&&size: &&usize| (size as f64 / wanted).ln().abs();
            sizes.iter().min_by(|a, b| off(a).total_cmp(&off(b)))
        };
        let mut some: Vec<usize> = (0..MOST)
            .filter_map(|i| nearest(wanted(i)))
            .copied()
            .collect();
        some.dedup();
        return some;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_stand_for_many() {
        assert_eq!(sizes(16, &[4]), [4]);
        assert_eq!(sizes(12, &[1, 2, 5, 12]), [1, 3, 6, 12]);
        let all: Vec<usize> = (1..=256).collect();
        let some = sizes(256, &all);
        assert!(
            some.len() <= 6 && some[0] == 1 && some.ends_with(&[256]),
            "{some:?}"
        );
    }
}
