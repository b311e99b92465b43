//! The cost of stages: of their layers, and of what some of them compute again.

use std::ops::Range;

use gpipe_layers::{Cost, CostModel, Layer};
use gpipe_partition::{CutRule, Loads, Partition, balance_parts, explicit};
use gpipe_sched::Schedule;

use super::model_costs::recomputed_share;
use crate::{ModelCosts, Policy, RematPlan, Result, Retained};

/// The cost of any run of layers as a stage, over the whole batch: that of its layers, and, where stages differ in how
/// much of their forward pass a policy computes again, that of what a stage computes again more than the one that does so
/// least.
///
/// Of 1F1B, the last stage computes nothing again, as the backward pass of a micro-batch directly follows the forward
/// pass; by [`Policy::Stage`], all others compute all of it again, a third more work. What every stage computes again
/// leaves their shares nearly as they are, and is not counted. Neither is recomputation under a budget, which follows from
/// the cut.
#[derive(Clone, Debug)]
pub struct StagePrices {
    layers: Vec<u64>,
    sums: Sums,
    /// What stages compute again; `None` where all compute the same share.
    again: Option<Again>,
}

#[derive(Clone, Debug)]
struct Again {
    /// Of forward passes.
    forward: Sums,
    /// Its part that is computed again where nothing needs the outputs.
    without_outputs: Vec<u64>,
    kept: Retained,
    /// The first layer that is computed again.
    first: usize,
    /// The micro-batches of each stage that are computed again, beyond those of the stage with the fewest.
    micro_batches: Vec<usize>,
    of: usize,
}

impl StagePrices {
    /// The costs of stages that cost what their layers cost.
    pub fn of_layers(layers: Vec<u64>) -> Self {
        Self {
            sums: Sums::new(&layers),
            layers,
            again: None,
        }
    }

    /// The costs of stages by `model`, for the costs of all replicas and the schedule of one of `replicas`. Replicas with
    /// different numbers of micro-batches, which have one cut, count no recomputation. The first `before` layers are
    /// before the pipeline.
    ///
    /// # Errors
    /// If Lingvo has no formula for a layer.
    pub fn new(
        costs: &ModelCosts,
        layers: &[Box<dyn Layer>],
        model: CostModel,
        policy: Policy,
        schedule: &Schedule,
        replicas: usize,
        before: usize,
    ) -> Result<Self> {
        let prices = costs.prices(layers, model)?;
        let of = schedule.micro_batches();
        let groups = costs.groups();
        let is_alike = |replica| {
            let own = groups.on_replica(replica, replicas);
            own.is_some_and(|own| own.own_micro_batches().len() == of)
        };
        if !(0..replicas).all(is_alike) {
            return Ok(Self::of_layers(prices));
        }
        let plan = RematPlan::of_rule(policy, schedule);
        let forgets = |kept: &&Retained| **kept != Retained::Everything;
        let stages = (0..schedule.stages()).map(|stage| plan.of_stage(stage));
        let counts = stages
            .clone()
            .map(|cells| cells.iter().filter(forgets).count());
        let least = counts.clone().min().unwrap_or(0);
        let micro_batches: Vec<usize> = counts.map(|count| count - least).collect();
        // The same for every micro-batch of which not everything is kept.
        let kept = stages.flatten().find(forgets).cloned();
        let again = match kept.filter(|_| micro_batches.iter().any(|&more| more > 0)) {
            None => None,
            Some(kept) => {
                let forward = costs.forward_prices(layers, model)?;
                let part =
                    |(&price, cost): (&u64, &Cost)| (price as f64 * recomputed_share(cost)) as u64;
                Some(Again {
                    without_outputs: forward.iter().zip(costs.of(0)).map(part).collect(),
                    forward: Sums::new(&forward),
                    kept,
                    first: before.max(costs.first_trained()),
                    micro_batches,
                    of,
                })
            }
        };
        Ok(Self {
            again,
            ..Self::of_layers(prices)
        })
    }

    /// The cost of each layer by itself.
    pub fn layers(&self) -> &[u64] {
        &self.layers
    }

    /// Whether what stages compute again is counted.
    pub fn counts_recomputation(&self) -> bool {
        self.again.is_some()
    }

    /// The cost of a stage of these layers.
    ///
    /// # Panics
    /// For layers or a stage that are not there.
    pub fn of(&self, stage: usize, layers: Range<usize>) -> u64 {
        let own = self.sums.of(layers.clone());
        let again = self.again.as_ref().map(|again| again.of(stage, layers));
        u64::try_from(own + again.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// The cut by a rule, of which the first stage has `before` layers more.
    ///
    /// # Errors
    /// As [`CutRule::cut`] for the layers behind them, the first of which costs what those before cost too.
    pub fn cut(
        &self,
        rule: &CutRule,
        stages: usize,
        before: usize,
    ) -> gpipe_partition::Result<Partition> {
        let (first, behind) = self.layers.split_at(before.min(self.layers.len()));
        let cut = match (rule, self.counts_recomputation()) {
            (CutRule::Balance, true) => balance_parts(behind.len(), stages, |stage, layers| {
                let start = match layers.start {
                    0 => 0,
                    start => start + before,
                };
                self.of(stage, start..layers.end + before)
            })?,
            _ => {
                let mut behind = behind.to_vec();
                if let Some(cost) = behind.first_mut() {
                    *cost = first
                        .iter()
                        .fold(*cost, |sum, &one| sum.saturating_add(one));
                }
                rule.cut(&behind, stages)?
            }
        };
        let mut sizes = cut.sizes();
        sizes[0] += first.len();
        explicit(&sizes, self.layers.len())
    }

    /// The cost of each stage of a cut, beside the best cut.
    ///
    /// # Errors
    /// If the cut has not as many layers, or all layers cost more than a `u64` holds.
    pub fn loads(&self, cut: &Partition) -> gpipe_partition::Result<Loads> {
        let alone = cut.loads(&self.layers)?;
        Ok(match self.again {
            None => alone,
            Some(_) => cut.loads_by(|stage, layers| self.of(stage, layers)),
        })
    }
}

impl Again {
    /// What a stage of these layers computes again.
    fn of(&self, stage: usize, layers: Range<usize>) -> u128 {
        let more = self.micro_batches[stage];
        if more == 0 {
            return 0;
        }
        let first = self.first.saturating_sub(layers.start);
        let runs = self.kept.runs_behind(first, layers.len()).into_iter();
        let runs = runs.map(|run| {
            let last = layers.start + run.layers.end - 1;
            let before = self.forward.of(layers.start + run.layers.start..last);
            before + u128::from(self.without_outputs[last])
        });
        runs.sum::<u128>() * more as u128 / self.of as u128
    }
}

/// Sums of costs before each layer.
#[derive(Clone, Debug)]
struct Sums(Vec<u128>);

impl Sums {
    fn new(costs: &[u64]) -> Self {
        let before = costs.iter().scan(0, |sum, &cost| {
            *sum += u128::from(cost);
            Some(*sum)
        });
        Self(std::iter::once(0).chain(before).collect())
    }

    /// The cost of a run of layers.
    fn of(&self, layers: Range<usize>) -> u128 {
        self.0[layers.end] - self.0[layers.start]
    }
}

#[cfg(test)]
mod tests {
    use gpipe_layers::layers::{Activation, Function, Layout, Linear};
    use gpipe_layers::{Flow, freeze};
    use gpipe_sched::{gpipe, one_f_one_b};

    use super::*;
    use crate::{ParameterBytes, Times};

    /// What the simulator recomputes is what a stage costs beside its layers.
    #[test]
    fn a_stage_costs_what_it_computes_again() {
        let mut layers: Vec<Box<dyn Layer>> = Vec::new();
        for i in 0..4 {
            layers.push(Box::new(Linear::new(
                format!("linear{i}"),
                64,
                64,
                Layout::OutIn,
            )));
            layers.push(Box::new(Activation::new(
                format!("relu{i}"),
                Function::Relu,
            )));
        }
        freeze(layers[0].as_mut(), |_| true);
        let weights = ParameterBytes::new(&mut layers, None);
        let samples = crate::micro_batches(12, 4).unwrap();
        let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::f32([n, 64])]).unwrap();
        let costs = costs.with_frozen(&weights);
        let times = Times::of_flops(&costs, 1.0);
        let model = CostModel::Complete;
        let schedule = one_f_one_b(3, 4).unwrap();
        let prices = |policy, schedule: &Schedule| {
            StagePrices::new(&costs, &layers, model, policy, schedule, 1, 0).unwrap()
        };
        for (policy, again) in [
            (Policy::Keep, [0; 3]),
            (Policy::Stage, [4, 4, 0]),
            (Policy::ExceptLast, [3, 3, 0]),
            (Policy::Every(2), [4, 4, 0]),
        ] {
            let prices = prices(policy, &schedule);
            assert_eq!(prices.counts_recomputation(), policy != Policy::Keep);
            let plan = RematPlan::of_rule(policy, &schedule);
            let ranges = (0..8).flat_map(|start| (start + 1..=8).map(move |end| start..end));
            for (layers, stage) in ranges.flat_map(|range| (0..3).map(move |s| (range.clone(), s)))
            {
                let own: u64 = costs.flops()[layers.clone()].iter().sum();
                let [one, _] = times.again(1, &layers, plan.kept(stage, 0), &costs);
                let expected = own + again[stage] * one as u64;
                assert_eq!(
                    prices.of(stage, layers.clone()),
                    expected,
                    "{policy} {layers:?}"
                );
            }
        }
        assert!(!prices(Policy::Stage, &gpipe(3, 4).unwrap()).counts_recomputation());
    }
}
