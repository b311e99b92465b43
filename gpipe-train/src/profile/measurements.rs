//! Measured times of the kinds of layers, and those of sizes in between.

use std::collections::BTreeMap;

use gpipe_remat::{Times, Work};
use serde::{Deserialize, Serialize};

use super::kinds::Kinds;
use crate::config::TrainConfig;
use crate::machine;

/// The version of the format; others are refused.
pub const FORMAT: u32 = 1;

/// Measured times of layers on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The version of the format, 1.
    pub format: u32,
    /// The version of gpipe.
    pub gpipe: String,
    /// The vendor's name of the CPU.
    pub processor: String,
    /// The architecture and vector instructions.
    pub instructions: String,
    /// Threads that were busy together.
    pub threads: usize,
    /// Seconds of overhead per action.
    pub action_seconds: f64,
    /// Measurements by the key of a kind of layer, in ascending order of micro-batch size.
    pub kinds: BTreeMap<String, Vec<Size>>,
}

/// The times of a layer for micro-batches of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Samples per micro-batch.
    pub samples: usize,
    /// Times in ascending order of threads, from 1.
    pub times: Vec<Passes>,
}

/// Seconds on a number of threads, while the other threads run the same work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passes {
    /// The number of threads.
    pub threads: usize,
    /// Forward pass; the loss too, if the layer is the last.
    pub forward: f64,
    /// Input gradient.
    pub input_grad: f64,
    /// Weight gradient.
    pub weight_grad: f64,
    /// Additional time of a weight gradient that does not directly follow the input gradient.
    pub apart: f64,
    /// Gradient norm, update and gradient reset, once per step.
    pub update: f64,
    /// An operation of the passes, the mean weighted by length; 0 in profiles of before it was measured.
    #[serde(default)]
    pub operation: f64,
}

impl Passes {
    /// The times in the order of the fields.
    pub fn seconds(&self) -> [f64; 6] {
        let [forward, input_grad] = [self.forward, self.input_grad];
        let [update, operation] = [self.update, self.operation];
        [
            forward,
            input_grad,
            self.weight_grad,
            self.apart,
            update,
            operation,
        ]
    }

    /// Times in the order of the fields.
    pub fn of(threads: usize, seconds: [f64; 6]) -> Self {
        let [forward, input_grad, weight_grad, apart, update, operation] = seconds;
        Self {
            threads,
            forward,
            input_grad,
            weight_grad,
            apart,
            update,
            operation,
        }
    }
}

impl Profile {
    /// An empty profile of this machine.
    pub fn here(config: &TrainConfig) -> Self {
        Self {
            format: FORMAT,
            gpipe: env!("CARGO_PKG_VERSION").to_owned(),
            processor: machine::processor().name.unwrap_or_default(),
            instructions: machine::instructions(*config.run.instruction_set),
            threads: config.pipeline.threads.get(),
            action_seconds: 0.0,
            kinds: BTreeMap::new(),
        }
    }

    /// Adds the times of a kind of layer; replaces those of the same micro-batch size.
    pub fn put(&mut self, key: &str, new: Size) {
        let sizes = self.kinds.entry(key.to_owned()).or_default();
        sizes.retain(|size| size.samples != new.samples);
        sizes.push(new);
        sizes.sort_by_key(|size| size.samples);
    }

    /// Whether all kinds are measured.
    pub fn knows(&self, kinds: &Kinds) -> bool {
        let known = |key: &String| self.kinds.contains_key(key);
        kinds.list.iter().all(|kind| known(&kind.key))
    }

    /// Whether these micro-batch sizes are within the measured range of every kind.
    pub fn covers(&self, kinds: &Kinds, sizes: &[usize]) -> bool {
        let covered = |known: &[Size], size: usize| {
            let first = known.first().is_some_and(|known| known.samples <= size);
            first && known.last().is_some_and(|known| size <= known.samples)
        };
        let known = |key: &String| self.kinds.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut all = kinds.list.iter().map(|kind| known(&kind.key));
        all.all(|known| sizes.iter().all(|&size| covered(known, size)))
    }

    /// The times of the layers for a micro-batch of `samples`, interpolated between measured sizes.
    /// `None` if a kind is not measured.
    pub fn times(&self, kinds: &Kinds, samples: usize) -> Option<Times> {
        let on = |threads: usize| -> Option<Vec<Work>> {
            let of_kind = kinds.list.iter().map(|kind| {
                let [forward, input_grad, weight_grad, apart, update, operation] =
                    between(self.kinds.get(&kind.key)?, threads, samples)?;
                Some(Work {
                    forward,
                    input_grad,
                    weight_grad,
                    apart,
                    update,
                    operation,
                })
            });
            let of_kind: Vec<Work> = of_kind.collect::<Option<_>>()?;
            Some(kinds.of_layer.iter().map(|&kind| of_kind[kind]).collect())
        };
        Some(Times {
            work: on(1)?,
            shares: (2..=self.threads).map(on).collect::<Option<_>>()?,
            action: self.action_seconds,
        })
    }
}

/// The times on the largest measured number of threads up to `threads`.
fn on(size: &Size, threads: usize) -> Option<[f64; 6]> {
    let mut fewer = size.times.iter().rev();
    Some(fewer.find(|times| times.threads <= threads)?.seconds())
}

/// Interpolates linearly between the nearest sizes; beyond them, scales in proportion to samples.
fn between(sizes: &[Size], threads: usize, samples: usize) -> Option<[f64; 6]> {
    let next = sizes.partition_point(|size| size.samples < samples);
    let above = sizes.get(next);
    let below = next.checked_sub(1).and_then(|before| sizes.get(before));
    let (a, b, share) = match (below, above) {
        (_, Some(size)) if size.samples == samples => return on(size, threads),
        (Some(a), Some(b)) => {
            let share = (samples - a.samples) as f64 / (b.samples - a.samples) as f64;
            (on(a, threads)?, on(b, threads)?, share)
        }
        (Some(one), None) | (None, Some(one)) => {
            let ratio = samples as f64 / one.samples as f64;
            let mut seconds = on(one, threads)?;
            let update = seconds[4];
            seconds.iter_mut().for_each(|seconds| *seconds *= ratio);
            seconds[4] = update;
            return Some(seconds);
        }
        (None, None) => return None,
    };
    Some(std::array::from_fn(|i| a[i] + share * (b[i] - a[i])))
}

#[cfg(test)]
pub mod tests {
    use super::super::kinds::Kind;
    use super::*;

    pub fn profile() -> Profile {
        let size = |samples: usize| Size {
            samples,
            times: vec![
                Passes::of(1, [samples as f64, 2.0, 3.0, 0.5, 4.0, 0.25]),
                Passes::of(4, [samples as f64 / 3.0, 1.0, 1.0, 0.5, 1.0, 0.125]),
            ],
        };
        let mut profile = Profile {
            format: FORMAT,
            gpipe: "1".into(),
            processor: "p".into(),
            instructions: "i".into(),
            threads: 4,
            action_seconds: 0.5,
            kinds: BTreeMap::new(),
        };
        for samples in [8, 2] {
            profile.put("a", size(samples));
        }
        profile
    }

    pub fn kinds(key: &str) -> Kinds {
        let kind = Kind {
            key: key.into(),
            name: "a".into(),
            layer: 0,
            count: 2,
        };
        Kinds {
            list: vec![kind],
            of_layer: vec![0, 0],
        }
    }

    #[test]
    fn times_lie_between_those_that_were_measured() {
        let (profile, a) = (profile(), kinds("a"));
        let forward = |samples, threads: usize| {
            let times = profile.times(&a, samples).unwrap();
            assert_eq!(times.action, 0.5);
            times.on(threads)[1].forward
        };
        assert_eq!(forward(8, 1), 8.0);
        assert_eq!(forward(5, 1), 5.0);
        assert_eq!(forward(16, 1), 16.0);
        assert_eq!(forward(1, 1), 1.0);
        // Two and three threads were not measured.
        assert_eq!(forward(8, 3), 8.0);
        assert_eq!(forward(6, 4), 2.0);
        // Operations grow with micro-batches, the update does not.
        let beyond = profile.times(&a, 16).unwrap();
        assert_eq!(
            (beyond.work[0].operation, beyond.work[0].update),
            (0.5, 4.0)
        );
        assert!(profile.covers(&a, &[2, 8]) && !profile.covers(&a, &[1]));
        assert!(!profile.covers(&a, &[9]) && !profile.knows(&kinds("b")));
        assert!(profile.times(&kinds("b"), 2).is_none());
    }
}
