//! Choice of the tensors that a stage keeps, if it fits its worker.

use std::ops::Range;
use std::rc::Rc;

use gpipe_sched::Schedule;

use super::request::{Costed, PlanRequest};
use crate::memory::activations::activations;
use crate::memory::budget::{self, StageContext};
use crate::{Bytes, Policy, RematPlan, Retained, StageMemory};

/// The tensors that one stage keeps.
#[derive(Debug)]
pub(super) struct StagePlan {
    /// The choice for each micro-batch.
    pub kept: Vec<Retained>,
    /// Recomputed work of each micro-batch that is not fully kept: on one core, on two and so on.
    pub again: Vec<f64>,
}

/// Chooses what stages keep under one schedule.
pub(super) struct Chooser<'a> {
    request: &'a PlanRequest<'a>,
    costed: Rc<Costed>,
    schedule: Rc<Schedule>,
    /// The remat plan of each policy that does not depend on bytes; `None` for a budget.
    rules: Vec<Option<RematPlan>>,
}

impl<'a> Chooser<'a> {
    pub fn new(request: &'a PlanRequest<'a>, costed: Rc<Costed>, schedule: Rc<Schedule>) -> Self {
        let rules = request.policies.iter();
        Self {
            rules: rules
                .map(|&policy| match policy {
                    Policy::Budget(_) => None,
                    rule => Some(RematPlan::of_rule(rule, &schedule)),
                })
                .collect(),
            request,
            costed,
            schedule,
        }
    }

    /// The choice with the least recomputation that fits the limit.
    pub fn choose(
        &self,
        stage: usize,
        part: &Range<usize>,
        limit: Option<u64>,
    ) -> Option<StagePlan> {
        let fixed = self.request.weights.of_stage(part.clone());
        if limit.is_some_and(|limit| fixed.fixed() > limit) {
            return None;
        }
        let mut best: Option<(f64, StagePlan)> = None;
        for (rule, policy) in self.rules.iter().zip(&self.request.policies) {
            let limit = match *policy {
                Policy::Budget(Bytes(own)) if own < u64::MAX => {
                    Some(limit.map_or(own, |limit| limit.min(own)))
                }
                _ => limit,
            };
            let kept = match (rule, limit) {
                (Some(remat_plan), _) => remat_plan.of_stage(stage).to_vec(),
                (None, None) => vec![Retained::Everything; self.schedule.micro_batches()],
                (None, Some(limit)) => match self.context(stage, part).cheapest(limit, self.most())
                {
                    Some(kept) => vec![kept; self.schedule.micro_batches()],
                    None => continue,
                },
            };
            let (again, total) = self.again(part, &kept);
            if best.as_ref().is_some_and(|(least, _)| *least <= total) {
                continue;
            }
            // The search of a budget has checked the limit.
            let fits =
                rule.is_none() || limit.is_none_or(|limit| self.peak(stage, part, &kept) <= limit);
            if fits {
                best = Some((total, StagePlan { kept, again }));
            }
        }
        best.map(|(_, plan)| plan)
    }

    /// The peak bytes of a stage under this choice.
    pub fn peak(&self, stage: usize, part: &Range<usize>, kept: &[Retained]) -> u64 {
        let costs = &self.costed.costs;
        StageMemory {
            activations: activations(costs, part, &self.schedule, stage, true, |m| &kept[m]),
            ..self.request.weights.of_stage(part.clone())
        }
        .peak()
    }

    /// The same where the optimizer state is shared out over the replicas.
    pub fn sharded_peak(&self, stage: usize, part: &Range<usize>, kept: &[Retained]) -> u64 {
        let PlanRequest {
            weights,
            replication,
            ..
        } = self.request;
        let shards = (*weights).clone().largest_shards(replication.replicas);
        let [all, largest] = [weights, &shards].map(|of| of.of_stage(part.clone()).optimizer);
        let saved = all.saturating_sub(largest);
        self.peak(stage, part, kept).saturating_sub(saved)
    }

    /// The effort of the choice for a stage of this number of layers, in simulated actions; 0 where there is no search.
    pub fn effort(&self, layers: usize) -> u64 {
        /// Simulated actions that take about as long as the search looks at a run of layers.
        const ACTIONS_A_RUN: u64 = 2;
        let request = self.request;
        let is_limited = request.workers.iter().any(|worker| worker.memory.is_some());
        let is_searched = request
            .policies
            .iter()
            .any(|policy| matches!(policy, Policy::Budget(own) if is_limited || own.0 < u64::MAX));
        match is_searched && !self.is_small() {
            true => (layers as u64).saturating_pow(2) * ACTIONS_A_RUN,
            false => 0,
        }
    }

    /// Whether there is time for the exact choice everywhere.
    pub fn is_small(&self) -> bool {
        self.costed.times.work.len() <= 16
    }

    fn most(&self) -> usize {
        match self.is_small() {
            true => budget::EXACT,
            false => budget::QUICK,
        }
    }

    fn context(&self, stage: usize, part: &Range<usize>) -> StageContext<'_> {
        StageContext {
            costs: &self.costed.costs,
            schedule: &self.schedule,
            stage,
            part: part.clone(),
            fixed: self.request.weights.of_stage(part.clone()),
        }
    }

    /// Recomputed work of a full micro-batch by number of cores, and of all micro-batches on one core.
    fn again(&self, part: &Range<usize>, kept: &[Retained]) -> (Vec<f64>, f64) {
        let (times, costs) = (&self.costed.times, &self.costed.costs);
        let Some(forgetting) = kept.iter().find(|kept| forgets(kept)) else {
            return (vec![0.0; times.cores()], 0.0);
        };
        let on = |cores: usize| times.again(cores, part, forgetting, costs)[0];
        let again: Vec<f64> = (1..=times.cores()).map(on).collect();
        let sizes = (0..kept.len())
            .filter(|&m| forgets(&kept[m]))
            .map(|m| costs.samples(m) as f64 / costs.samples(0) as f64);
        let total = sizes.sum::<f64>() * again[0];
        (again, total)
    }

    /// The fewest bytes with which a stage fits under any of the policies; `None` if it is over its budgets whatever the
    /// memory.
    pub fn least(&self, stage: usize, part: &Range<usize>) -> Option<u64> {
        let policies = self.rules.iter().zip(&self.request.policies);
        let of_policy = |(rule, policy): (&Option<RematPlan>, &Policy)| {
            let least = match rule {
                Some(remat_plan) => self.peak(stage, part, remat_plan.of_stage(stage)),
                None if self.is_small() => self.context(stage, part).least(),
                None => self.context(stage, part).simplest(),
            };
            match *policy {
                Policy::Budget(Bytes(own)) if own < least => None,
                _ => Some(least),
            }
        };
        policies.filter_map(of_policy).min()
    }
}

/// Whether this choice recomputes anything.
pub(super) fn forgets(kept: &Retained) -> bool {
    *kept != Retained::Everything
}
