//! The choice among numbers of replicas and placements of them.

use super::plan::{CertifiedPlan, Plan};
use super::request::PlanRequest;
use super::search::{ACTIONS, Planner};
use crate::{Error, Result};

impl CertifiedPlan {
    /// The fastest of the plans that answer these requests, which differ in their replicas: of equally fast ones, that
    /// with the fewest workers. Its bound is that of all of them.
    ///
    /// # Errors
    /// As [`Planner::answer`]; that of the first request if nothing fits.
    pub fn among(requests: &[PlanRequest<'_>]) -> Result<Self> {
        let mut found = Vec::new();
        let mut bound = f64::INFINITY;
        let mut refused = None;
        let is_small = |request: &&PlanRequest<'_>| !is_too_large(request);
        let sharing = requests.iter().filter(is_small).count() as u64;
        let (mut left, mut asked) = (ACTIONS, sharing);
        // From small pipelines up: what they leave of their effort goes to the larger ones.
        for request in requests.iter().rev() {
            let mut planner = Planner::new(request)?;
            if is_too_large(request) {
                // The bytes that would suffice take time to find: only where they are asked for.
                refused = Some(planner);
                continue;
            }
            planner.sharing = sharing;
            let effort = left / asked.max(1);
            planner.left = effort;
            let best = planner.best(|_, _| true, f64::INFINITY)?;
            let best = match best {
                Some((plan, of_request)) => {
                    bound = bound.min(of_request);
                    let fastest = plan.seconds;
                    Some((planner.simplest(plan)?, fastest))
                }
                None => None,
            };
            left -= effort - planner.left;
            asked -= 1;
            match best {
                Some((plan, fastest)) => found.push((plan, fastest, planner)),
                None => refused = Some(planner),
            }
        }
        // Of plans that are alike in all that is compared, that of the first request.
        found.reverse();
        let workers = |plan: &Plan| plan.workers.len() * plan.replication.replicas;
        found.sort_by(|(a, ..), (b, ..)| {
            let by_time = a.seconds.total_cmp(&b.seconds);
            by_time.then(workers(a).cmp(&workers(b)))
        });
        let mut single = None;
        for (_, _, planner) in &mut found {
            if planner.request.replication.replicas == 1 {
                single = single.or(planner.single()?);
            }
        }
        let mut found = found.into_iter();
        let Some((plan, fastest, mut planner)) = found.next() else {
            return Err(match refused {
                Some(mut planner) => planner.does_not_fit()?,
                None => Error::PlanRequest("no number of replicas to choose from: name one".into()),
            });
        };
        Ok(Self {
            with_more: planner.with_more(&plan)?,
            alternatives: found.map(|(plan, ..)| plan).collect(),
            plan,
            fastest,
            bound,
            single,
            replicas: None,
        })
    }
}

/// Whether parameters, gradients and optimizer states alone are more than all workers of a replica hold.
fn is_too_large(request: &PlanRequest<'_>) -> bool {
    request.fewest_workers().is_none()
}
