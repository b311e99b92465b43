//! Times of layers: the input of the simulator.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use gpipe_layers::{Cost, CostModel};
use gpipe_sched::{Action, Costs, LinkCosts, Op, PortalCosts, Schedule, StageCosts};

use crate::{ModelCosts, RematPlan, Retained, RetainedRun};

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
            }
        };
        let times = Self {
            work: costs.of(0).iter().map(work).collect(),
            shares: Vec::new(),
            action: rates.action,
        };
        times.without_frozen(costs).into_owned()
    }

    /// The seconds of the FLOPs on a core of `flops_per_second`; all else is free.
    pub fn of_flops(costs: &ModelCosts, flops_per_second: f64) -> Self {
        Self::of_rates(costs, Rates::of_flops(flops_per_second))
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
            };
            self.work.iter().map(faster).collect()
        };
        self.shares = (2..=cores).map(on).collect();
        self
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
    /// update of frozen layers.
    pub(crate) fn without_frozen(&self, costs: &ModelCosts) -> Cow<'_, Self> {
        let first = costs.first_trained();
        if first == 0 {
            return Cow::Borrowed(self);
        }
        let of_layer = |(layer, work): (usize, &Work)| match layer.cmp(&first) {
            Ordering::Less => Work {
                forward: work.forward,
                ..Work::default()
            },
            Ordering::Equal => Work {
                input_grad: 0.0,
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

/// Whether a stage has separate actions for input and weight gradients.
pub(crate) fn splits(schedule: &Schedule, stage: usize) -> bool {
    let mut actions = schedule.of_stage(stage);
    actions.any(|action| action.op == Op::WeightGrad)
}

/// The work of the layers before the pipeline, as additions to the actions of the first stage that do it: the first
/// forward pass of each group, and the last pass that takes an input gradient.
fn before_pipeline(
    costs: &ModelCosts,
    work: &[Work],
    schedule: &Schedule,
    before: usize,
) -> Vec<(Action, f64)> {
    let work = &work[..before];
    let largest = costs.samples(0) as f64;
    let forward: f64 = work.iter().map(|work| work.forward).sum();
    // The gradient of the model's input is not computed.
    let input_grad: f64 = work.iter().skip(1).map(|work| work.input_grad).sum();
    let weight_grad: f64 = work.iter().map(|work| work.weight_grad).sum();
    let groups = (0..costs.groups().count()).filter(|_| before > 0);
    groups
        .flat_map(|group| {
            let members = costs.groups().micro_batches(group);
            let samples: usize = members.clone().map(|m| costs.samples(m)).sum();
            let actions = || {
                let own = schedule.of_stage(0);
                own.filter(|action| members.contains(&action.micro_batch))
            };
            let first = actions().find(|action| action.op == Op::Forward);
            let last = actions().filter(|action| matches!(action.op, Op::Backward | Op::InputGrad));
            let share = samples as f64 / largest;
            let first = first.map(|action| (action, forward * share));
            let last = last.last();
            let last = last.map(|action| (action, (input_grad + weight_grad) * share));
            first.into_iter().chain(last)
        })
        .collect()
}

/// The simulator's costs of a model under a cut and a remat plan, by the number of cores that an action
/// may use, from one on, as [`simulate_shared`](gpipe_sched::simulate_shared) takes them. Transfers are
/// free.
pub fn simulator_costs(
    costs: &ModelCosts,
    times: &Times,
    cut: &[Range<usize>],
    schedule: &Schedule,
    remat_plan: &RematPlan,
) -> Vec<Costs> {
    let costs = &*remat_plan.applied_to(costs);
    let times = &*times.without_frozen(costs);
    let largest = costs.samples(0) as f64;
    let micro_batches = schedule.micro_batches();
    // Micro-batches differ by one sample at most; times are those of the first, the largest.
    let sizes = (0..micro_batches).map(|m| costs.samples(m) as f64 / largest);
    let sizes: Vec<f64> = sizes.collect();
    let ends = remat_plan.portals().ends().into_iter();
    let free = ends.map(|portal| PortalCosts {
        portal,
        link: LinkCosts::default(),
    });
    let on = |cores: usize| {
        let (mut stages, mut left) = (Vec::new(), Vec::new());
        for (stage, part) in cut.iter().enumerate() {
            let part = &(part.start.max(remat_plan.before())..part.end);
            // The same for every micro-batch that is not fully kept.
            let mut cells = remat_plan.of_stage(stage).iter();
            let forgetting = cells.find(|kept| **kept != Retained::Everything);
            let [recompute, rest] = forgetting.map_or([0.0; 2], |kept| {
                times.again(cores, part, kept, costs.first_trained())
            });
            stages.push(StageCosts {
                recompute,
                ..times.of_stage(cores, part, splits(schedule, stage), costs.first_trained())
            });
            left.push(rest);
        }
        Costs::new(stages)
            .with_sizes(sizes.clone())
            .with_portals(free.clone().collect())
            .with_additions(before_pipeline(
                costs,
                times.on(cores),
                schedule,
                remat_plan.before(),
            ))
            .with_left(left)
            .with_recompute(micro_batches, |stage, m| {
                *remat_plan.kept(stage, m) != Retained::Everything
            })
    };
    (1..=times.cores()).map(on).collect()
}

#[cfg(test)]
mod tests {
    use gpipe_layers::Flow;
    use gpipe_layers::layers::{Activation, Function, Layout, Linear};

    use super::*;

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
