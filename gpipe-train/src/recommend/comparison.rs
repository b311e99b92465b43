//! All plans, ranked.

use std::ops::Range;

use gpipe_remat::planner::{Plan, Planner};
use gpipe_remat::{Bytes, Policy, StageMemory, Work};

use super::recommender::Recommender;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::setup::{Setup, hides};

/// A plan of a [`Comparison`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RankedPlan {
    /// The plan.
    pub plan: Plan,
    /// The rematerialization policy, as a value of `pipeline.remat`.
    pub remat: String,
    /// The rule of the cut: `balance` or `histogram`.
    pub partition: &'static str,
    policy: Policy,
    order: usize,
}

/// The best plan of each combination of schedule, workers, micro-batches and policy.
#[derive(Debug)]
#[non_exhaustive]
pub struct Comparison {
    /// The plans, fastest first.
    pub plans: Vec<RankedPlan>,
    /// The fastest plan with the cut of Lingvo's histogram rule, if that exists and fits the memory.
    pub histogram: Option<RankedPlan>,
}

impl Recommender {
    /// The best plan of each combination, fastest first, and the fastest with Lingvo's cut.
    ///
    /// # Errors
    /// As [`recommend`](Self::recommend), if no plan fits the memory.
    pub fn compare(&self, config: &TrainConfig) -> Result<Comparison> {
        if self.hosts().is_some() {
            return Err(Error::invalid(
                "--compare ranks plans without replicas: use --auto for --hosts, which lists the best of each number",
            ));
        }
        let budget = Policy::Budget(Bytes(u64::MAX));
        let policies = match (self.space.policy, self.memory()) {
            (Some(given), _) => vec![given],
            (None, Some(_)) => vec![Policy::Keep, Policy::Stage, budget],
            (None, None) => vec![Policy::Keep, Policy::Stage],
        };
        let mut plans = Vec::new();
        for policy in policies {
            let request = self.request(vec![policy]);
            let mut planner = Planner::new(&request).map_err(Error::input)?;
            for order in 0..self.space.orders.len() {
                for workers in 1..=self.workers.len() {
                    if workers == 1 && order > 1 {
                        continue;
                    }
                    for &micro_batches in &self.space.micro_batches {
                        let found = planner.under(order, workers, micro_batches);
                        if let Some((mut plan, _)) = found.map_err(Error::input)? {
                            self.as_run(&mut plan, policy, config)?;
                            let ranked = self.ranked(plan, policy, order, "balance");
                            // A plan that keeps everything is in the list already.
                            let duplicate = ranked.remat == Policy::Keep.to_string();
                            if policy == Policy::Keep || !duplicate {
                                plans.push(ranked);
                            }
                        }
                    }
                }
            }
        }
        plans.sort_by(|a, b| a.plan.seconds.total_cmp(&b.plan.seconds));
        let histogram = match plans.first() {
            Some(best) => self.histogram(best, config)?,
            None => {
                // Returns the error with the memory that would suffice.
                self.recommend()?;
                None
            }
        };
        Ok(Comparison { plans, histogram })
    }

    fn ranked(
        &self,
        plan: Plan,
        policy: Policy,
        order: usize,
        partition: &'static str,
    ) -> RankedPlan {
        let remat = match policy {
            Policy::Budget(_) => self.remat(&plan),
            policy => policy,
        };
        RankedPlan {
            plan,
            remat: remat.to_string(),
            partition,
            policy,
            order,
        }
    }

    /// Replaces the prediction of a plan by that of its run on this machine, which hides recomputation
    /// in idle time. No effect for other workers.
    pub(super) fn as_run(
        &self,
        plan: &mut Plan,
        policy: Policy,
        config: &TrainConfig,
    ) -> Result<()> {
        let here = self.speed.as_ref().zip(self.cores);
        let Some((speed, cores)) = here.filter(|_| hides(policy)) else {
            return Ok(());
        };
        let chosen = self.apply_with(plan, policy, config)?;
        let setup = Setup::new(&chosen)?;
        let times = speed.times(&setup.costs, cores);
        plan.seconds = setup.step_seconds(&times)?;
        plan.bubble = setup.predicted(&times)?.bubble();
        plan.peaks = setup.memory.iter().map(StageMemory::peak).collect();
        Ok(())
    }

    fn histogram(&self, best: &RankedPlan, config: &TrainConfig) -> Result<Option<RankedPlan>> {
        let parts = gpipe_remat::micro_batches(self.batch, best.plan.micro_batches);
        let costed = parts
            .and_then(|parts| (self.price)(&parts))
            .map_err(Error::input)?;
        let work = |work: &Work| work.forward + work.input_grad + work.weight_grad;
        let work: Vec<f64> = costed.times.work.iter().map(work).collect();
        let Ok(cut) = gpipe_partition::histogram(&work, best.plan.cut.len()) else {
            return Ok(None);
        };
        let request = self.request(vec![best.policy]);
        let mut planner = Planner::new(&request).map_err(Error::input)?;
        let cut: Vec<Range<usize>> = cut.ranges().collect();
        let (workers, micro_batches) = (best.plan.workers.len(), best.plan.micro_batches);
        let plan = planner.with_cut(best.order, workers, micro_batches, &cut);
        let Some(mut plan) = plan.map_err(Error::input)? else {
            return Ok(None);
        };
        self.as_run(&mut plan, best.policy, config)?;
        Ok(Some(self.ranked(
            plan,
            best.policy,
            best.order,
            "histogram",
        )))
    }
}
