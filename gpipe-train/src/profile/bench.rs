//! One worker of a measurement: the passes of its share of the layers, and their times.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gpipe_layers::{
    Flow, Layer, Loss, Optimizer, Param, PassContext, Saved, UpdateSettings, make, try_params,
};
use gpipe_remat::ModelCosts;
use gpipe_report::numbers;
use gpipe_tensor::{Device, Tensor, Tensors, ops};

use super::clock::Clock;
use super::given::{filled, targets};
use super::kinds::{Kind, Kinds};
use super::operations::{self, Took};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::setup;

/// Warm-up passes, which allocate buffers and touch pages.
const WARM_UP: usize = 2;
/// Minimum and maximum number of measured passes, and the seconds they should fit in. Every second pass
/// runs weight gradients apart from input gradients.
const FEWEST: usize = 6;
const MOST: usize = 30;
const SECONDS: f64 = 0.6;
/// Maximum number of passes between updates, few enough that every measurement includes updates.
const MOST_OF_A_STEP: usize = 4;

/// Seconds of a layer, in the order of the fields of [`Passes`](super::measurements::Passes).
pub type Seconds = [f64; 6];

/// One worker with its share of the layers of every kind.
pub struct Bench {
    parts: Vec<Part>,
    /// The inputs of each kind.
    given: Vec<Given>,
    device: Device,
    clock: Clock,
    optimizer: Optimizer,
    loss: Loss,
    samples: u64,
    /// The saved tensors of each micro-batch in flight, by layer.
    in_flight: VecDeque<Vec<Saved>>,
    /// Maximum number of micro-batches in flight.
    depth: usize,
    /// Passes per step.
    step: usize,
}

struct Part {
    kind: usize,
    layer: Box<dyn Layer>,
    is_first: bool,
}

/// Input tensors and output gradients of a kind.
struct Given {
    x: Vec<Tensor>,
    dy: Vec<Tensor>,
    /// The targets, for the last layer of the model.
    targets: Option<Tensor>,
}

impl Bench {
    pub fn new(
        config: &TrainConfig,
        kinds: &Kinds,
        samples: usize,
        (device, clock): (Device, Clock),
        (worker, workers): (usize, usize),
    ) -> Result<Self> {
        let optimizer = setup::optimizer(config);
        let layers = setup::layers(config)?;
        let batch = gpipe_remat::micro_batches(samples, 1).map_err(Error::input)?;
        let costs = ModelCosts::new(&layers, &batch, setup::input(config)).map_err(Error::input)?;
        let vocabulary = config.model.vocab().unwrap_or(1).max(1);
        let fill = |flow: &Flow| filled(&device, flow, vocabulary);
        let given = |kind: &Kind| {
            let takes = costs.flow(0, kind.layer).iter();
            let gives = &costs.of(0)[kind.layer].outputs;
            let back = gives.iter().filter(|flow| flow.dtype.is_float());
            let targets = match gives.first() {
                Some(scores) if kind.layer + 1 == layers.len() => {
                    Some(targets(&device, scores, config.loss())?)
                }
                _ => None,
            };
            Ok(Given {
                x: takes
                    .take(layers[kind.layer].arity())
                    .map(fill)
                    .collect::<Result<_>>()?,
                dy: back.map(fill).collect::<Result<_>>()?,
                targets,
            })
        };
        let given = kinds.list.iter().map(given).collect::<Result<_>>()?;
        // By a model, layers of a kind are alike.
        let share = |kind: &Kind| match clock.is_host() {
            true => kind.count.div_ceil(workers),
            false => 1,
        };
        let mut missing: Vec<usize> = kinds.list.iter().map(share).collect();
        let mut parts = Vec::new();
        for (index, mut layer) in layers.into_iter().enumerate() {
            let kind = kinds.of_layer[index];
            if missing[kind] == 0 {
                continue;
            }
            missing[kind] -= 1;
            make(layer.as_mut(), &device, 0).map_err(Error::run)?;
            try_params(layer.as_mut(), |param| match param.tied {
                true => Ok(()),
                false => optimizer.make_state(param),
            })
            .map_err(Error::run)?;
            parts.push(Part {
                kind,
                layer,
                is_first: index == 0,
            });
        }
        let micro_batches = config.data.batch_size.get().div_ceil(samples.max(1));
        Ok(Self {
            parts,
            given,
            clock,
            device,
            optimizer,
            loss: config.loss(),
            samples: samples as u64,
            in_flight: VecDeque::new(),
            depth: (workers - worker).min(micro_batches).max(1),
            step: micro_batches.clamp(1, MOST_OF_A_STEP),
        })
    }

    /// The expected times of a pass. Continues to run passes until `others` workers have finished theirs.
    pub fn expected(mut self, done: &AtomicUsize, others: usize) -> Result<Vec<Seconds>> {
        let mut passes: Vec<Vec<Seconds>> = Vec::new();
        let mut wanted = FEWEST;
        for number in 0..self.depth - 1 {
            self.forward(number as u64)?;
        }
        // The first update touches pages of the optimizer state.
        self.update(0, &mut vec![0.0; self.parts.len()])?;
        let mut number = 0;
        while passes.len() < wanted || done.load(Ordering::Relaxed) < others {
            let start = Instant::now();
            let times = self.pass(number as u64)?;
            let seconds = start.elapsed().as_secs_f64();
            if number + 1 == WARM_UP {
                wanted = ((SECONDS / seconds.max(1e-6)) as usize).clamp(FEWEST, MOST);
            }
            if number >= WARM_UP && passes.len() < wanted {
                passes.push(times);
                if passes.len() == wanted {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            number += 1;
        }
        // The mean over the layers of a kind; 0 where a pass did not measure.
        let mean = |times: &[Seconds], kind: usize, pass: usize| {
            let of_kind = || (self.parts.iter().zip(times)).filter(|(part, _)| part.kind == kind);
            of_kind().map(|(_, times)| times[pass]).sum::<f64>() / of_kind().count().max(1) as f64
        };
        let typical = |kind: usize, pass: usize| {
            let all = passes.iter().map(|times| mean(times, kind, pass));
            expected(all.filter(|&seconds| seconds > 0.0).collect())
        };
        let of_kind = |kind: usize| {
            let mut times: Seconds = std::array::from_fn(|pass| typical(kind, pass));
            times[3] = (times[3] - times[2]).max(0.0);
            times
        };
        Ok((0..self.given.len()).map(of_kind).collect())
    }

    /// The times by a model, which are the same in every pass of the same order.
    #[cfg(feature = "cuda")]
    pub fn modelled(mut self) -> Result<Vec<Seconds>> {
        self.step = 1;
        let [together, apart] = [self.pass(0)?, self.pass(1)?];
        let mut of_kind = vec![[0.0; 6]; self.given.len()];
        for ((part, mut seconds), apart) in self.parts.iter().zip(together).zip(apart) {
            seconds[3] = (apart[3] - seconds[2]).max(0.0);
            of_kind[part.kind] = seconds;
        }
        Ok(of_kind)
    }

    /// A forward pass of a new micro-batch, a backward pass of the oldest, and at the end of a step the
    /// update. Returns the seconds of each layer: forward pass, input gradient, weight gradient, weight
    /// gradient apart, update, and an operation of the passes.
    fn pass(&mut self, number: u64) -> Result<Vec<Seconds>> {
        let device = self.device.clone();
        let _busy = device.cpu_slot();
        let forward = self.forward(number)?;
        let apart = !number.is_multiple_of(2);
        let backward = self.backward(apart)?;
        let mut update = vec![0.0; self.parts.len()];
        if (number + 1).is_multiple_of(self.step as u64) {
            self.update(number, &mut update)?;
        }
        let passes = forward.into_iter().zip(backward).zip(update);
        let seconds = passes.map(|((forward, [input_grad, weight_grad]), update)| {
            let operation = operations::mean(&[forward, input_grad, weight_grad]);
            let [together, after] = match apart {
                false => [weight_grad.seconds, 0.0],
                true => [0.0, weight_grad.seconds],
            };
            [
                forward.seconds,
                input_grad.seconds,
                together,
                after,
                update,
                operation,
            ]
        });
        Ok(seconds.collect())
    }

    fn forward(&mut self, number: u64) -> Result<Vec<Took>> {
        let cx = PassContext::training(0, number, 0..self.samples);
        let mut saved = Vec::with_capacity(self.parts.len());
        let mut times = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let given = &self.given[part.kind];
            let x = self.copied(&given.x)?;
            let forward = || -> Result<Saved> {
                let (y, kept) = part.layer.forward(&cx, x).map_err(Error::run)?;
                // The loss is part of the forward pass of the last stage.
                if let (Some(targets), Some(y)) = (&given.targets, y.into_iter().next()) {
                    let divisor = targets.elements() as f64;
                    self.loss
                        .gradient(y, targets, divisor)
                        .map_err(Error::run)?;
                }
                Ok(kept)
            };
            let (kept, took) = self.clock.time(forward)?;
            saved.push(kept?);
            times.push(took);
        }
        self.in_flight.push_back(saved);
        Ok(times)
    }

    /// A backward pass: both gradients of each layer in turn (`B`), or, if `apart`, all input gradients
    /// (`I`) before all weight gradients (`W`). The times of the two, of each layer.
    fn backward(&mut self, apart: bool) -> Result<Vec<[Took; 2]>> {
        let mut times = vec![[Took::default(); 2]; self.parts.len()];
        let Some(mut saved) = self.in_flight.pop_front() else {
            return Ok(times);
        };
        let mut left = Vec::with_capacity(self.parts.len());
        for index in (0..self.parts.len()).rev() {
            let Some(saved) = saved.pop() else {
                break;
            };
            let dy = self.copied(&self.given[self.parts[index].kind].dy)?;
            let (part, times) = (&mut self.parts[index], &mut times[index]);
            let (pending, took) = self.clock.time(|| match part.is_first {
                true => part.layer.param_only_grad(saved, dy),
                false => part.layer.input_grad(saved, dy).map(|(_, pending)| pending),
            })?;
            times[0] = took;
            let pending = pending.map_err(Error::run)?;
            if apart {
                left.push((index, pending));
                continue;
            }
            let weight_grad = || part.layer.weight_grad(pending);
            let (made, took) = self.clock.time(weight_grad)?;
            made.map_err(Error::run)?;
            times[1] = took;
        }
        for (index, pending) in left {
            let layer = &mut self.parts[index].layer;
            let (made, took) = self.clock.time(|| layer.weight_grad(pending))?;
            made.map_err(Error::run)?;
            times[index][1] = took;
        }
        Ok(times)
    }

    /// Gradient norms of all layers, then all updates, then all gradient resets, as in a step: each sweep
    /// exceeds the caches.
    fn update(&mut self, number: u64, times: &mut [f64]) -> Result<()> {
        let optimizer = &self.optimizer;
        let settings = UpdateSettings {
            lr: 1e-6,
            step: number,
            grad_scale: 1.0,
        };
        let norm = |param: &mut Param| -> Result<()> {
            // Adding a tied gradient to its owner takes about as long as its norm.
            let grad = param.grad().map_err(Error::run)?;
            ops::sum_of_squares(grad).map(drop).map_err(Error::run)
        };
        let update = |param: &mut Param| match param.tied {
            true => Ok(()),
            false => (optimizer.update(param, settings)).map_err(Error::run),
        };
        let clear = |param: &mut Param| param.zero_grad().map_err(Error::run);
        type Sweep<'a> = &'a dyn Fn(&mut Param) -> Result<()>;
        for sweep in [&norm as Sweep<'_>, &update, &clear] {
            for (part, times) in self.parts.iter_mut().zip(&mut *times) {
                let (swept, took) = self.clock.time(|| {
                    try_params(part.layer.as_mut(), |param| match param.frozen {
                        true => Ok(()),
                        false => sweep(param),
                    })
                })?;
                swept?;
                *times += took.seconds;
            }
        }
        Ok(())
    }

    fn copied(&self, tensors: &[Tensor]) -> Result<Tensors> {
        let copies = tensors.iter().map(|tensor| tensor.copy_to(&self.device));
        let copies: std::result::Result<_, _> = copies.collect();
        copies.map_err(Error::run)
    }
}

/// The mean, with outliers limited to three times the median. A mean, because the time of a step is a
/// sum of slow and fast actions.
fn expected(mut seconds: Vec<f64>) -> f64 {
    let most = 3.0 * numbers::median(&mut seconds);
    let sum: f64 = seconds.iter().map(|seconds| seconds.min(most)).sum();
    sum / seconds.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_passes_count_and_outliers_are_limited() {
        assert_eq!(expected(vec![1.0, 2.0, 1.0, 1.0, 100.0]), 1.6);
        assert_eq!(expected(vec![2.0]), 2.0);
        assert_eq!(expected(Vec::new()), 0.0);
    }
}
