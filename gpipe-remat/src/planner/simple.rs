//! Choice of the simplest among plans of about the same speed.

use std::collections::BTreeSet;

use super::plan::Plan;
use super::search::Planner;
use crate::Result;

impl Planner<'_> {
    /// The plan with the fewest workers, and then the fewest stages, among those that are as fast as this
    /// one within the accuracy of times.
    pub(super) fn simplest(&mut self, plan: Plan) -> Result<Plan> {
        // Times that differ by rounding alone are equal.
        let min_gain = self.request.min_gain.max(1e-9);
        let most = plan.seconds / (1.0 - min_gain);
        let chunks: BTreeSet<usize> = (self.request.orders.iter())
            .map(|order| order.chunks)
            .collect();
        let own = (plan.workers.len(), plan.cut.len() / plan.workers.len());
        let simpler = (1..=own.0).flat_map(|workers| chunks.iter().map(move |&c| (workers, c)));
        for shape in simpler.take_while(|&shape| shape < own) {
            if self.left == 0 {
                break;
            }
            let found = self.best(|workers, chunks| (workers, chunks) == shape, most)?;
            if let Some((plan, _)) = found {
                return Ok(plan);
            }
        }
        Ok(plan)
    }
}
