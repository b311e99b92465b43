//! Times of layers: the input of the simulator.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use gpipe_layers::{Cost, CostModel};
use gpipe_sched::StageCosts;

use crate::{ModelCosts, Retained, RetainedRun};

/// Work of a layer, in seconds or any other common unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Forward pass of a micro-batch.
    pub forward: f64,
    /// Input gradient of a micro-batch.
    pub input_grad: f64,
    /// Weight gradient of a micro-batch, right after its input gradient.
    pub weight_grad: f64,
    /// Additional work of the weight gradient as a separate action: its inputs are then not in a cache.
    pub apart: f64,
    /// Work per step: norm and update.
    pub update: f64,
    /// Work of an operation of the passes, the mean weighted by length: where workers share cores, a running
    /// operation keeps its own to its end. 0: cores are given up and taken at once.
    pub operation: f64,
}

/// Work of every layer for the first micro-batch, which is the largest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Work on one core.
    pub work: Vec<Work>,
    /// Work on two cores, on three and so on; with more cores than listed, that of the last entry.
    pub shares: Vec<Vec<Work>>,
    /// Overhead of every action besides its layers.
    pub action: f64,
}

/// The speed of a core where no layer was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// FLOPs a second.
    pub flops: f64,
    /// Bytes read and written a second.
    pub bytes: f64,
    /// Seconds of an action besides its layers.
    pub action: f64,
}

impl Rates {
    /// This many FLOPs a second; all else is free.
    pub fn of_flops(flops: f64) -> Self {
        Self {
            flops,
            bytes: f64::INFINITY,
            action: 0.0,
        }
    }

    /// This many FLOPs a second, and the bytes that a cost model counts in their time; all else is free.
    pub fn of_model(model: CostModel, flops: f64) -> Self {
        Self {
            bytes: model
                .flops_per_byte()
                .map_or(f64::INFINITY, |per_byte| flops / per_byte),
            ..Self::of_flops(flops)
        }
    }

    /// FLOPs in the time of a byte.
    pub fn flops_per_byte(&self) -> f64 {
        self.flops / self.bytes
    }

    /// The same with the time of a FLOP as the unit of time, for workers whose speed is in FLOP/s.
    #[must_use]
    pub fn by_flop(&self) -> Self {
        Self {
            flops: 1.0,
            bytes: self.flops_per_byte().recip(),
            action: self.action * self.flops,
        }
    }
}

impl Times {
    /// The seconds of the FLOPs and of the bytes that are read and written, one after the other. Bytes are
    /// known for all passes of a layer together: each has a third, or the input gradient two where
    /// there is no weight gradient.
    pub fn of_rates(costs: &ModelCosts, rates: Rates) -> Self {
        let work = |cost: &Cost| {
            let third = cost.traffic as f64 / 3.0 / rates.bytes;
            let pass = |flops: u64, bytes: f64| flops as f64 / rates.flops + bytes;
            let [input_grad, weight_grad] = match cost.weight_grad {
                0 => [2.0 * third, 0.0],
                _ => [third; 2],
            };
            Work {
                forward: pass(cost.forward, third),
                input_grad: pass(cost.input_grad, input_grad),
                weight_grad: pass(cost.weight_grad, weight_grad),
                apart: 0.0,
                update: cost.params as f64 * ModelCosts::UPDATE_BYTES as f64 / rates.bytes,
                operation: 0.0,
            }
        };
        let mut work: Vec<Work> = costs.of(0).iter().map(work).collect();
        for frozen in &mut work[..costs.first_trained()] {
            frozen.update = 0.0;
        }
        Self {
            work,
            shares: Vec::new(),
            action: rates.action,
        }
    }

    /// The same with the bytes that processors [gather](Cost::gathered), at this many a second. As those of the traffic,
    /// each pass has a third.
    #[must_use]
    pub fn with_gathered(mut self, costs: &ModelCosts, bytes_per_second: f64) -> Self {
        for (work, cost) in self.work.iter_mut().zip(costs.of(0)) {
            let third = cost.gathered as f64 / 3.0 / bytes_per_second;
            work.forward += third;
            match cost.weight_grad {
                0 => work.input_grad += 2.0 * third,
                _ => {
                    work.input_grad += third;
                    work.weight_grad += third;
                }
            }
        }
        self
    }

    /// The seconds of the FLOPs on a core of `flops_per_second`; all else is free.
    pub fn of_flops(costs: &ModelCosts, flops_per_second: f64) -> Self {
        Self::of_rates(costs, Rates::of_flops(flops_per_second))
    }

    /// The same with operations that are this share of their layer's forward pass.
    #[must_use]
    pub fn with_operations(mut self, share: f64) -> Self {
        for work in self.work.iter_mut().chain(self.shares.iter_mut().flatten()) {
            work.operation = share * work.forward;
        }
        self
    }

    /// The same on up to `cores` cores, where a layer uses the share `efficiency` (0 to 1) of each core
    /// but the first.
    #[must_use]
    pub fn with_cores(mut self, cores: usize, efficiency: f64) -> Self {
        let on = |cores: usize| {
            let gain = 1.0 + (cores - 1) as f64 * efficiency;
            let faster = |work: &Work| Work {
                forward: work.forward / gain,
                input_grad: work.input_grad / gain,
                weight_grad: work.weight_grad / gain,
                apart: work.apart / gain,
                update: work.update / gain,
                operation: work.operation / gain,
            };
            self.work.iter().map(faster).collect()
        };
        self.shares = (2..=cores).map(on).collect();
        self
    }

    /// The times of workers with this many cores each, of which others have no use.
    #[must_use]
    pub fn of_share(&self, cores: usize) -> Self {
        Self {
            work: self.on(cores).to_vec(),
            shares: Vec::new(),
            action: self.action,
        }
    }

    /// The largest number of cores with times.
    pub fn cores(&self) -> usize {
        1 + self.shares.len()
    }

    /// The work on a number of cores, at most [`cores`](Self::cores).
    pub fn on(&self, cores: usize) -> &[Work] {
        match cores.clamp(1, self.cores()) {
            1 => &self.work,
            more => &self.shares[more - 2],
        }
    }

    /// The seconds of the update of the parameters, which all devices begin at the same time. `speed`
    /// returns the speed of a device; the devices share the cores, if a number is given.
    pub fn update(
        &self,
        cut: &[Range<usize>],
        device_of: &[usize],
        speed: impl Fn(usize) -> f64,
        cores: Option<usize>,
    ) -> f64 {
        let devices = device_of.iter().max().map_or(1, |&last| last + 1);
        let share = cores.map_or(1, |cores| (cores / devices).clamp(1, self.cores()));
        let mut seconds = vec![0.0; devices];
        for (part, &device) in cut.iter().zip(device_of) {
            let work = self.on(share)[part.clone()].iter();
            seconds[device] += work.map(|work| work.update).sum::<f64>() / speed(device);
        }
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        match cores {
            None => longest,
            Some(cores) => {
                let all: f64 = seconds.iter().sum();
                longest.max(all * share as f64 / cores.max(1) as f64)
            }
        }
    }

    /// The same without the gradients that layers need not compute ([`ModelCosts::with_frozen`]), and without the
    /// update of frozen layers. Not to be applied twice.
    pub(crate) fn without_frozen(&self, costs: &ModelCosts) -> Cow<'_, Self> {
        let first = costs.first_trained();
        if first == 0 {
            return Cow::Borrowed(self);
        }
        let cost = &costs.of(0)[first];
        let param_only = cost.param_only_grad as f64 / cost.input_grad.max(1) as f64;
        let of_layer = |(layer, work): (usize, &Work)| match layer.cmp(&first) {
            Ordering::Less => Work {
                forward: work.forward,
                operation: work.operation,
                ..Work::default()
            },
            Ordering::Equal => Work {
                input_grad: work.input_grad * param_only,
                ..*work
            },
            Ordering::Greater => *work,
        };
        let mask = |work: &Vec<Work>| work.iter().enumerate().map(of_layer).collect();
        Cow::Owned(Self {
            work: mask(&self.work),
            shares: self.shares.iter().map(mask).collect(),
            action: self.action,
        })
    }

    /// The work of a stage of these layers on a number of cores, of which those from `trained` on have a backward pass.
    pub(crate) fn of_stage(
        &self,
        cores: usize,
        part: &Range<usize>,
        splits: bool,
        trained: usize,
    ) -> StageCosts {
        let work = self.on(cores);
        let sum = |number: fn(&Work) -> f64, part: Range<usize>| -> f64 {
            work[part].iter().map(number).sum()
        };
        let forward = sum(|work| work.forward, part.clone()) + self.action;
        if part.end <= trained {
            return StageCosts {
                forward,
                ..StageCosts::default()
            };
        }
        StageCosts {
            forward,
            // The gradient of the model's input is not computed.
            input_grad: sum(|work| work.input_grad, part.start.max(1)..part.end.max(1))
                + self.action,
            weight_grad: sum(|work| work.weight_grad, part.clone())
                + match splits {
                    true => sum(|work| work.apart, part.clone()) + self.action,
                    false => 0.0,
                },
            recompute: 0.0,
        }
    }

    /// The work of an operation of these layers: the mean, weighted by length.
    pub(crate) fn operation(&self, cores: usize, part: &Range<usize>) -> f64 {
        let work = &self.on(cores)[part.clone()];
        let passes = |work: &Work| work.forward + work.input_grad + work.weight_grad;
        let all: f64 = work.iter().map(passes).sum();
        let weighted: f64 = work.iter().map(|work| passes(work) * work.operation).sum();
        match all > 0.0 {
            true => weighted / all,
            false => 0.0,
        }
    }

    /// The recomputed work of the layers of a stage that are not kept: all of it, and the part that a
    /// recompute action leaves to the backward pass, which is all runs but the last. Those before `trained` are never
    /// computed again.
    pub(crate) fn again(
        &self,
        cores: usize,
        part: &Range<usize>,
        kept: &Retained,
        trained: usize,
    ) -> [f64; 2] {
        let frozen = trained.saturating_sub(part.start).min(part.len());
        let work = &self.on(cores)[part.clone()];
        let seconds =
            |run: RetainedRun| -> f64 { work[run.layers].iter().map(|w| w.forward).sum() };
        let runs = kept.runs_behind(frozen, part.len()).into_iter();
        let runs = runs.filter(|run| !run.kept);
        let seconds: Vec<f64> = runs.map(seconds).collect();
        let all: f64 = seconds.iter().sum();
        [all, all - seconds.last().copied().unwrap_or(0.0)]
    }
}

#[cfg(test)]
mod tests {
    use gpipe_layers::layers::{Activation, Function, Layout, Linear, Residual, Sequential};
    use gpipe_layers::{Flow, freeze};

    use super::*;
    use crate::ParameterBytes;

    /// A layer's parameters are read for each micro-batch, so twice as many take longer, but not twice as
    /// long; by FLOPs alone they would take the same.
    #[test]
    fn a_micro_batch_costs_what_its_parameters_cost() {
        let layers: [Box<dyn gpipe_layers::Layer>; 1] =
            [Box::new(Linear::new("linear", 64, 32, Layout::OutIn))];
        let input = |samples: usize| vec![Flow::f32([samples, 64])];
        let seconds = |parts: usize, rates: Rates| {
            let samples = crate::micro_batches(16, parts).unwrap();
            let costs = ModelCosts::new(&layers, &samples, input).unwrap();
            let work = Times::of_rates(&costs, rates).work[0];
            parts as f64 * (work.forward + work.input_grad + work.weight_grad)
        };
        let rates = Rates {
            flops: 1e9,
            bytes: 1e9,
            action: 0.0,
        };
        let [one, two] = [1, 2].map(|parts| seconds(parts, rates));
        assert!(one < two && two < 2.0 * one, "{one}, {two}");
        let [one, two] = [1, 2].map(|parts| seconds(parts, Rates::of_flops(1e9)));
        assert!((one - two).abs() < 1e-12 * one, "{one}, {two}");
    }

    /// Where gradients end in a residual branch, they still pass all of its layers but the first.
    #[test]
    fn the_first_layer_that_trains_computes_what_its_parameters_need() {
        let linear = |i: usize| Linear::new(format!("linear{i}"), 64, 64, Layout::OutIn);
        let branch = Sequential::new().then(linear(1)).then(linear(2));
        let mut layers: [Box<dyn gpipe_layers::Layer>; 4] = [
            Box::new(linear(0)),
            Box::new(Activation::new("relu", Function::Relu)),
            Box::new(Residual::new("residual", branch)),
            Box::new(linear(3)),
        ];
        freeze(layers[0].as_mut(), |_| true);
        let weights = ParameterBytes::new(&mut layers, None);
        let samples = crate::micro_batches(16, 1).unwrap();
        let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::f32([n, 64])]).unwrap();
        let costs = costs.with_frozen(&weights);
        let all = Times::of_flops(&costs, 1.0);
        let times = all.without_frozen(&costs);
        let gradients =
            |layer: usize| [times.work[layer].input_grad, times.work[layer].weight_grad];
        assert_eq!(
            (costs.first_trained(), gradients(0), gradients(1)),
            (2, [0.0; 2], [0.0; 2])
        );
        let whole = |layer: usize| [all.work[layer].input_grad, all.work[layer].weight_grad];
        // That of one linear layer, of two.
        assert_eq!(gradients(2), [whole(3)[0], whole(2)[1]]);
        assert_eq!(gradients(3), whole(3));
        // Less is done in each stage but the last, and nothing but forward passes in the first.
        let stages = [0..2, 2..3, 3..4].map(|part| times.of_stage(1, &part, false, 2));
        assert_eq!((stages[0].input_grad, stages[0].weight_grad), (0.0, 0.0));
        assert!(stages[1].input_grad > 0.0);
    }

    /// The simulator weighs layers as the cut does.
    #[test]
    fn the_work_of_a_cost_model_is_its_price() {
        let layers: [Box<dyn gpipe_layers::Layer>; 2] = [
            Box::new(Linear::new("linear", 64, 32, Layout::OutIn)),
            Box::new(Activation::new("relu", Function::Relu)),
        ];
        let samples = crate::micro_batches(16, 1).unwrap();
        let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::f32([n, 64])]).unwrap();
        for model in ["complete", "time", "time:3"].map(|name| name.parse().unwrap()) {
            let prices = costs.prices(&layers, model).unwrap();
            let times = Times::of_rates(&costs, Rates::of_model(model, 1.0));
            for (work, price) in times.work.iter().zip(prices) {
                let work = work.forward + work.input_grad + work.weight_grad + work.update;
                let price = price as f64;
                assert!(
                    (work - price).abs() < 1e-12 * price,
                    "{model:?}: {work}, {price}"
                );
            }
        }
    }
}
