//! What a plan is compared with: one worker, replicas of the model, and more memory; without a plan, the memory that would
//! suffice.

use super::plan::Plan;
use super::request::fault;
use super::search::{ACTIONS, Planner};
use crate::{Bytes, DoesNotFit, Error, Result};

impl Planner<'_> {
    /// The seconds of the best plan on one worker, if one fits.
    pub(super) fn single(&mut self) -> Result<Option<f64>> {
        let found = self.best(|workers, _| workers == 1, f64::INFINITY)?;
        Ok(found.map(|(plan, _)| plan.seconds))
    }

    /// Data parallelism, a copy of the model on every worker: each processes its share of the batch, and
    /// a ring all-reduce sums the gradients (Patarasuk and Yuan 2009).
    pub(super) fn replicas(&self, single: f64) -> Option<f64> {
        let request = self.request;
        let workers = request.workers.len();
        if workers < 2 || request.cores.is_some() || request.replication.replicas > 1 {
            return None;
        }
        let slowest = request.workers.iter().map(|worker| worker.speed);
        let (slowest, fastest) = slowest.fold((f64::INFINITY, 0.0_f64), |(low, high), speed| {
            (low.min(speed), high.max(speed))
        });
        let layers = request.weights.layers();
        let gradients = request.weights.of_stage(0..layers).gradients as f64;
        let count = workers as f64;
        let exchange = 2.0 * (count - 1.0) / count * gradients / request.link.bytes_per_second
            + 2.0 * (count - 1.0) * request.link.latency;
        Some(single * (fastest / slowest) / count + exchange)
    }

    /// The smallest of some amounts of memory above the limit with which a step is faster.
    pub(super) fn with_more(&mut self, plan: &Plan) -> Result<Option<(Bytes, f64)>> {
        let Some(limit) = self.request.least_memory() else {
            return Ok(None);
        };
        for sixths in [7, 9, 12, 24_u64] {
            let more = limit.saturating_mul(sixths) / 6;
            let request = self.request.with_memory(more);
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
        let no_schedule = "no schedule has as few stages as there are layers: allow fewer workers";
        let Some(limit) = request.least_memory() else {
            return fault(no_schedule);
        };
        let micro_batches = request.micro_batches.iter().copied().max().unwrap_or(1);
        let mut least: Option<u64> = None;
        for (index, order) in request.orders.iter().enumerate() {
            let given = request.stages.or(request.cut.as_ref().map(Vec::len));
            let stages = given.unwrap_or(request.weights.layers());
            let most = request.workers.len().min(stages / order.chunks);
            let Some(candidate) = self.candidate(index, most.max(1), micro_batches)? else {
                continue;
            };
            least = candidate.least_memory(limit, least).or(least);
        }
        let Some(needed) = least else {
            return fault(no_schedule);
        };
        Ok(Error::DoesNotFit(DoesNotFit {
            limit: Bytes(limit),
            needed: Bytes(needed),
            short: Bytes(needed.saturating_sub(limit)),
        }))
    }
}
