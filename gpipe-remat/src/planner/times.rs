//! Times of layers: the input of the simulator.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use gpipe_layers::Cost;
use gpipe_sched::StageCosts;

use crate::memory::model_costs::recomputed_share;
use crate::{ModelCosts, Retained, RetainedRun};

/// Work of a layer, in seconds or any other common unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Forward pass of a micro-batch.
    pub forward: f64,
    /// Input gradient of a micro-batch; of the model's first layer no more of it than its parameters need, mostly nothing.
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

impl Work {
    /// The work of a layer of this cost that nobody wants the gradient of the input of: what gradients of parameters inside it
    /// depend on stays.
    pub(super) fn for_parameters_only(self, cost: &Cost) -> Self {
        let share = cost.param_only_grad as f64 / cost.input_grad.max(1) as f64;
        Self {
            input_grad: self.input_grad * share,
            ..self
        }
    }
}

impl Times {
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
    ///
    /// # Panics
    /// For a cut of more layers than these times are of.
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
        let of_layer = |(layer, work): (usize, &Work)| match layer.cmp(&first) {
            Ordering::Less => Work {
                forward: work.forward,
                operation: work.operation,
                ..Work::default()
            },
            Ordering::Equal => work.for_parameters_only(cost),
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
            input_grad: sum(|work| work.input_grad, part.clone()) + self.action,
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
    /// recompute action leaves to the backward pass, which is all runs but the last. Frozen layers at the beginning are
    /// never computed again.
    pub(crate) fn again(
        &self,
        cores: usize,
        part: &Range<usize>,
        kept: &Retained,
        costs: &ModelCosts,
    ) -> [f64; 2] {
        let frozen = costs.first_trained().saturating_sub(part.start);
        let frozen = frozen.min(part.len());
        let (work, costs) = (&self.on(cores)[part.clone()], &costs.of(0)[part.clone()]);
        let seconds = |run: RetainedRun| -> f64 {
            let last = run.layers.end - 1;
            let before: f64 = work[run.layers.start..last].iter().map(|w| w.forward).sum();
            before + work[last].forward * recomputed_share(&costs[last])
        };
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
        // The first layer of a model likewise.
        let whole_model = ModelCosts::new(&layers[2..], &samples, |n| vec![Flow::f32([n, 64])]);
        let from_residual = Times::of_flops(&whole_model.unwrap(), 1.0);
        let stage = from_residual.of_stage(1, &(0..1), false, 0);
        assert_eq!([stage.input_grad, stage.weight_grad], gradients(2));
        // Less is done in each stage but the last, and nothing but forward passes in the first.
        let stages = [0..2, 2..3, 3..4].map(|part| times.of_stage(1, &part, false, 2));
        assert_eq!((stages[0].input_grad, stages[0].weight_grad), (0.0, 0.0));
        assert!(stages[1].input_grad > 0.0);
    }
}
