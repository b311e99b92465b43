//! How long the layers of a model take on this machine: measured once, kept in a file beside the
//! configuration, and read by whoever predicts the time of a step.

mod empty;
mod file;
mod given;
mod kinds;
mod measure;
mod shown;

use std::path::{Path, PathBuf};

use gpipe_remat::{ModelCosts, Times};
use gpipe_tensor::DeviceId;

use crate::args::Talk;
use crate::config::Config;
use crate::fail::{Fail, Result};
use crate::machine;
use crate::output::{RUNS, numbers, style};
use crate::setup;
use file::Profile;
use kinds::Kinds;

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
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The file of the configuration, if it came from one.
    pub beside: Option<&'a Path>,
    /// Whether to measure now.
    pub measure: bool,
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
    pub fn of(config: &Config, wanted: Wanted<'_>, sizes: &[usize], talk: Talk) -> Result<Self> {
        let Wanted { beside, measure } = wanted;
        let layers = setup::layers(config)?;
        let kinds = Kinds::of(&layers, *config.run.dtype, setup::input(config))?;
        let path = match beside {
            Some(config) => config.with_extension("profile.json"),
            None => Path::new(RUNS).join("profile.json"),
        };
        let here = Profile::here(config);
        let found = file::read(&path, &here);
        if measure {
            let devices = &config.pipeline.devices;
            let workers = usize::try_from(devices.workers()).unwrap_or(usize::MAX);
            if devices
                .of_workers(workers.min(1 << 16))
                .iter()
                .any(|&id| id != DeviceId::Cpu)
            {
                return Err(Fail::asked(
                    "--profile measures processors only: leave it away, or use --devices cpu",
                ));
            }
            if !talk.quiet {
                anstream::eprintln!(
                    "measuring {} kinds of layers in micro-batches of {}",
                    kinds.list.len(),
                    numbered(sizes)
                );
            }
            let mut profile = found.ok().flatten().unwrap_or(here);
            measure::measure(config, &kinds, sizes, &mut profile)?;
            file::write(&path, &profile)?;
            return Ok(Self::measured(kinds, profile, path));
        }
        match found {
            Ok(Some(profile)) if profile.covers(&kinds, sizes) => {
                return Ok(Self::measured(kinds, profile, path));
            }
            Ok(Some(profile)) if profile.knows(&kinds) => warn(
                &path,
                &format!("no micro-batches of {} samples", numbered(sizes)),
            ),
            Ok(_) => {}
            Err(fault) => warn(&path, &fault),
        }
        let rows = config.data.seq_len.get();
        let largest = sizes.iter().copied().max().unwrap_or(1);
        let rate = machine::flops_per_second(rows.saturating_mul(largest), config.model.widest())?;
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

    /// Where the times come from, in words.
    pub fn source(&self, threads: usize) -> String {
        match self {
            Self::Estimate(rate) => format!(
                "estimate: {threads} threads of {}FLOP/s, all else free",
                numbers::short(*rate)
            ),
            Self::Measured(measured) => {
                format!("by the layers in {}", measured.path.display())
            }
        }
    }
}

/// What is wrong with a profile that is not used.
fn warn(path: &Path, fault: &str) {
    anstream::eprintln!(
        "{}warning:{} {}: {fault}: it is not used; --profile measures anew",
        style::WARNING,
        style::RESET,
        path.display()
    );
}

fn numbered(sizes: &[usize]) -> String {
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
