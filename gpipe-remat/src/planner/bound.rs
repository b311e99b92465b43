//! Lower bounds of a step's time.

use std::collections::BTreeSet;
use std::ops::Range;

use gpipe_partition::search::{bisect, pack};

use super::crowded::busiest;
use super::request::{Costed, PlanRequest};
use crate::{Times, Work};

/// Prefix sums of a model's work, and the bounds from them.
pub(super) struct Bounds<'a> {
    request: &'a PlanRequest<'a>,
    times: Times,
    forward: Vec<f64>,
    input_grad: Vec<f64>,
    all: Vec<f64>,
    update: f64,
    /// Number of micro-batches weighted by size; size of the smallest.
    sizes: f64,
    smallest: f64,
}

impl<'a> Bounds<'a> {
    pub fn new(request: &'a PlanRequest<'a>, costed: &Costed) -> Self {
        let costs = &costed.costs;
        let size = |m| costs.samples(m) as f64 / costs.samples(0) as f64;
        let sums = |number: &dyn Fn(usize) -> f64| {
            let mut sums = vec![0.0];
            for layer in 0..costed.times.work.len() {
                sums.push(sums[layer] + number(layer));
            }
            sums
        };
        let work = &costed.times.work;
        Self {
            request,
            times: costed.times.clone(),
            forward: sums(&|layer| work[layer].forward),
            input_grad: sums(&|layer| work[layer].input_grad),
            all: sums(&|layer| {
                let work = &work[layer];
                work.forward + work.input_grad + work.weight_grad
            }),
            update: work.iter().map(|work| work.update).sum(),
            sizes: (0..costs.micro_batches()).map(size).sum(),
            smallest: (0..costs.micro_batches()).map(size).fold(1.0, f64::min),
        }
    }

    /// Lower bound, in seconds, of a step on `workers` workers with `chunks` stages each.
    pub fn of(&self, workers: usize, chunks: usize) -> f64 {
        let layers = self.all.len() - 1;
        if let Some(cores) = self.request.cores {
            return self.of_cores(workers, cores) * (1.0 - 1e-12);
        }
        let speeds = self.fastest(workers);
        let together: f64 = speeds.iter().sum();
        let fastest = speeds[0];
        // All work is done, and one micro-batch passes all stages forward and back.
        let work = (self.sizes * self.all[layers] + self.update) / together;
        let path = self.smallest * (self.forward[layers] + self.input_grad[layers]) / fastest;
        // A stage has at least one layer, and its actions are on one worker.
        let longest = match chunks {
            1 => self.bottleneck(workers),
            _ => self.longest_layer(),
        };
        // Margin for rounding.
        work.max(path).max(longest / fastest) * (1.0 - 1e-12)
    }

    /// The same for workers that share cores: the numbers of cores of busy workers
    /// differ by at most one and sum up to at most all cores.
    fn of_cores(&self, workers: usize, cores: usize) -> f64 {
        let speeds = self.request.workers.iter().map(|worker| worker.speed);
        let speed = speeds.fold(0.0, f64::max);
        let shares: BTreeSet<usize> = (1..=workers.min(cores))
            .flat_map(|busy| [cores / busy, cores.div_ceil(busy)])
            .map(|share| share.min(self.times.cores()))
            .collect();
        let least = |layer: usize, number: fn(&Work) -> f64, as_cores: bool| {
            let on = |&share: &usize| {
                let used = if as_cores { share as f64 } else { 1.0 };
                used * number(&self.times.on(share)[layer])
            };
            shares.iter().map(on).fold(f64::INFINITY, f64::min)
        };
        let (mut together, mut path) = (0.0, 0.0);
        for layer in 0..self.all.len() - 1 {
            let passes: [fn(&Work) -> f64; 3] = [
                |work| work.forward,
                |work| work.input_grad,
                |work| work.weight_grad,
            ];
            for number in passes {
                together += self.sizes * least(layer, number, true);
            }
            for number in &passes[..2] {
                path += self.smallest * least(layer, *number, false);
            }
            together += least(layer, |work| work.update, true);
        }
        (together / cores as f64).max(path) / speed
    }

    /// The work on the critical path through a stage of these layers: the first micro-batch up to the
    /// stage, all work of the stage, and the last micro-batch back from it.
    pub fn critical_path(&self, part: &Range<usize>) -> f64 {
        let of = |sums: &[f64]| sums[part.end] - sums[part.start];
        let down = self.smallest * self.forward[part.start];
        let up = self.smallest * self.input_grad[part.start];
        let gradient = down + self.sizes * (of(&self.forward) + of(&self.input_grad)) + up;
        gradient.max(down + self.sizes * of(&self.all))
    }

    /// Work of forward pass, input and weight gradient of these layers for a full micro-batch.
    pub fn thirds(&self, part: &Range<usize>) -> [f64; 3] {
        let of = |sums: &[f64]| sums[part.end] - sums[part.start];
        let [forward, input_grad] = [of(&self.forward), of(&self.input_grad)];
        [forward, input_grad, of(&self.all) - forward - input_grad]
    }

    /// Number of micro-batches weighted by size.
    pub fn sizes(&self) -> f64 {
        self.sizes
    }

    /// Lower bound, in seconds, of the update on a number of workers.
    pub fn update_on(&self, workers: usize) -> f64 {
        self.update / self.fastest(workers).iter().sum::<f64>()
    }

    /// The speeds of the fastest workers.
    fn fastest(&self, workers: usize) -> Vec<f64> {
        let mut speeds: Vec<f64> = self.request.workers.iter().map(|w| w.speed).collect();
        speeds.sort_by(|a, b| b.total_cmp(a));
        speeds.truncate(workers);
        speeds
    }

    /// The critical path where a stage holds at most `held` micro-batches: it takes no more than those
    /// before the first returns to it, after all later stages.
    pub fn held_path(&self, part: &Range<usize>, held: usize) -> f64 {
        let layers = self.all.len() - 1;
        let [down, ..] = self.thirds(&(0..layers));
        let [_, up, _] = self.thirds(&(part.end..layers));
        let [taken, ..] = self.thirds(part);
        self.smallest * (down + up) + self.work(part) - self.sizes.min(held as f64) * taken
    }

    /// The work of these layers for all micro-batches.
    pub fn work(&self, part: &Range<usize>) -> f64 {
        self.sizes * (self.all[part.end] - self.all[part.start])
    }

    /// Lower bound of the work on the busiest worker, for all micro-batches.
    pub fn crowded(&self, workers: usize, chunks: usize) -> f64 {
        let work: Vec<f64> = self.all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        self.sizes * busiest(&work, workers, chunks)
    }

    /// The longest of the critical paths of single layers.
    fn longest_layer(&self) -> f64 {
        let layers = 0..self.all.len() - 1;
        let paths = layers.map(|layer| self.critical_path(&(layer..layer + 1)));
        paths.fold(0.0, f64::max)
    }

    /// The minimum over all cuts of the longest of those paths. Greedy, with each stage as long as the
    /// limit permits; exact because a longer run has no shorter path.
    fn bottleneck(&self, stages: usize) -> f64 {
        let layers = self.all.len() - 1;
        let within = |limit: f64| {
            pack(0..layers, stages, |_, part| {
                self.critical_path(&part) <= limit
            })
            .map(|_| limit)
        };
        let high = self.critical_path(&(0..layers)) + self.critical_path(&(layers - 1..layers));
        let (low, _) = bisect(0.0, high, 40, within);
        low
    }
}
