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
    /// What stages compute again; `None` where all compute the same share.
    again: Option<Again>,
}

#[derive(Clone, Debug)]
struct Again {
    /// The forward pass of each layer.
    forward: Vec<u64>,
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
                    forward,
                    kept,
                    first: before.max(costs.first_trained()),
                    micro_batches,
                    of,
                })
            }
        };
        Ok(Self {
            layers: prices,
            again,
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
    pub fn of(&self, stage: usize, layers: Range<usize>) -> u64 {
        let own = sum(&self.layers[layers.clone()]);
        match &self.again {
            None => own,
            Some(again) => own.saturating_add(again.of(stage, layers)),
        }
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
                    *cost = sum(first).saturating_add(*cost);
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
    fn of(&self, stage: usize, layers: Range<usize>) -> u64 {
        let more = self.micro_batches[stage];
        if more == 0 {
            return 0;
        }
        let first = self.first.saturating_sub(layers.start);
        let runs = self.kept.runs_behind(first, layers.len()).into_iter();
        let runs = runs.map(|run| {
            let last = layers.start + run.layers.end - 1;
            let before = &self.forward[layers.start + run.layers.start..last];
            sum(before).saturating_add(self.without_outputs[last])
        });
        let again = runs.fold(0, u64::saturating_add);
        let again = u128::from(again) * more as u128 / self.of as u128;
        u64::try_from(again).unwrap_or(u64::MAX)
    }
}

fn sum(costs: &[u64]) -> u64 {
    costs.iter().copied().fold(0, u64::saturating_add)
}
