//! What a plan is compared with: one worker, replicas of the model, and more memory; without a plan, the memory that would
//! suffice.

use super::plan::Plan;
use super::replication::Replication;
use super::request::{PlanRequest, Worker, fault};
use super::search::{ACTIONS, Planner};
use crate::{Bytes, DoesNotFit, Error, Policy, Result};

impl Planner<'_> {
    /// The seconds of the best plan on one worker, if one fits.
    pub(super) fn single(&mut self) -> Result<Option<f64>> {
        let found = self.best(|workers, _| workers == 1, f64::INFINITY)?;
        Ok(found.map(|(plan, _)| plan.seconds))
    }

    /// Data parallelism, a copy of the model on every worker: each processes its share of the batch and updates all
    /// parameters, and their gradients are summed over the workers. Every worker counts as the slowest, and as that with the
    /// least memory. `None` if it does not fit every worker, there are fewer samples than workers, or workers share cores.
    pub(super) fn replicas(&self) -> Result<Option<f64>> {
        let request = self.request;
        let workers = request.workers.len();
        if workers < 2 || request.cores.is_some() || request.replication.replicas > 1 {
            return Ok(None);
        }
        let share = request.batch / workers;
        let micro_batches: Vec<usize> = match request.micro_batches[..] {
            [given] if given.is_multiple_of(workers) => vec![given / workers],
            [_] => Vec::new(),
            ref numbers => numbers.iter().copied().filter(|&n| n <= share).collect(),
        };
        if micro_batches.is_empty() {
            return Ok(None);
        }
        let speed = request.workers.iter().map(|worker| worker.speed);
        let worker = Worker {
            speed: speed.fold(f64::INFINITY, f64::min),
            memory: request.least_memory(),
        };
        let request = PlanRequest {
            workers: vec![worker],
            micro_batches,
            replication: Replication {
                replicas: workers,
                ..request.replication
            },
            ..request.with_memories(|own| own)
        };
        let mut planner = Planner::new(&request)?;
        planner.left = ACTIONS / 20;
        match planner.single() {
            // With more groups than its share has micro-batches, a worker has no plan.
            Err(Error::Groups { .. }) => Ok(None),
            found => found,
        }
    }

    /// The smallest of some amounts of memory above the limit with which a step is faster.
    pub(super) fn with_more(&mut self, plan: &Plan) -> Result<Option<(Bytes, f64)>> {
        let Some(limit) = self.request.least_memory() else {
            return Ok(None);
        };
        for sixths in [7, 9, 12, 24_u64] {
            let more = limit.saturating_mul(sixths) / 6;
            let request = self.request.with_at_least(more);
            let order = request
                .orders
                .iter()
                .position(|order| order.name == plan.order);
            let mut planner = Planner::new(&request)?;
            planner.left = ACTIONS / 20;
            let found =
                planner.under(order.unwrap_or(0), plan.workers.len(), plan.micro_batches)?;
            if let Some((better, _)) = found
                && better.seconds < 0.98 * plan.seconds
            {
                return Ok(Some((Bytes(more), better.seconds)));
            }
        }
        Ok(None)
    }

    /// The error with the memory that would suffice.
    pub(super) fn does_not_fit(&mut self) -> Result<Error> {
        let request = self.request;
        let limit = request.least_memory();
        let least = self.least_memory(limit.unwrap_or(0))?;
        if let (Some(limit), Some((needed, _))) = (limit, least) {
            return Ok(Error::DoesNotFit(DoesNotFit {
                limit: Bytes(limit),
                needed: Bytes(needed),
                short: Bytes(needed.saturating_sub(limit)),
            }));
        }
        // Whatever the memory, a stage is over a budget, or there is no schedule.
        let budgets = request.policies.iter().filter_map(|policy| match policy {
            Policy::Budget(own) if own.0 < u64::MAX => Some(*own),
            _ => None,
        });
        if let Some(own) = budgets.max() {
            let mut unlimited = request.with_memory(u64::MAX);
            unlimited.policies = vec![Policy::Budget(Bytes(u64::MAX))];
            if let Some((needed, chunks)) = Planner::new(&unlimited)?.least_memory(own.0)? {
                let needed = Bytes(needed.div_ceil(chunks)).rounded_up();
                return fault(format!(
                    "no plan was found whose stages need less than {needed}, but the budget is {own}: use \
                     `pipeline.remat = budget:{needed}` or more"
                ));
            }
        }
        let shapes = (1..=request.workers.len())
            .flat_map(|workers| request.orders.iter().map(move |order| (workers, order)));
        let mut stages = shapes.map(|(workers, order)| workers.saturating_mul(order.chunks));
        if stages.any(|stages| self.is_possible(stages)) {
            let mut parts: Vec<_> = request.micro_batches.iter().map(usize::to_string).collect();
            parts.dedup();
            return fault(format!(
                "no schedule takes {} micro-batches: use another number of them",
                parts.join(" or ")
            ));
        }
        match request.stages.or(request.cut.as_ref().map(Vec::len)) {
            Some(given) => fault(format!(
                "no schedule has {given} stages: use another number of stages, of workers or of stages on a worker"
            )),
            None => fault(
                "no schedule has as few stages as there are layers: use one with fewer stages on a worker",
            ),
        }
    }

    /// The least memory above a limit with which some plan fits, and the stages on a worker in that; `None` if there is no
    /// schedule, or each stage is over a budget.
    fn least_memory(&mut self, above: u64) -> Result<Option<(u64, u64)>> {
        let request = self.request;
        let mut micro_batches = request.micro_batches.clone();
        micro_batches.sort_unstable_by(|a, b| b.cmp(a));
        let mut least: Option<(u64, u64)> = None;
        for (index, order) in request.orders.iter().enumerate() {
            let given = request.stages.or(request.cut.as_ref().map(Vec::len));
            let stages = given.unwrap_or(request.weights.layers());
            let most = request.workers.len().min(stages / order.chunks).max(1);
            // Of the most workers and micro-batches; of fewer workers only with more micro-batches than those had a
            // schedule for.
            let mut parts = micro_batches.as_slice();
            for workers in (1..=most).rev() {
                for (place, &number) in parts.iter().enumerate() {
                    let Some(candidate) = self.candidate(index, workers, number)? else {
                        continue;
                    };
                    let best = least.map(|(memory, _)| memory);
                    let found = candidate.least_memory(above, best);
                    let found = found.filter(|found| best.is_none_or(|best| *found < best));
                    least = found.map(|memory| (memory, order.chunks as u64)).or(least);
                    parts = &parts[..place];
                    break;
                }
            }
        }
        Ok(least)
    }
}
