//! The choice among numbers of replicas and placements of them.

use super::plan::{CertifiedPlan, Plan};
use super::request::PlanRequest;
use super::search::Planner;
use crate::{Error, Result};

impl CertifiedPlan {
    /// The fastest of the plans that answer these requests, which differ in their replicas: of equally fast ones, that
    /// with the fewest workers. Its bound is that of all of them.
    ///
    /// # Errors
    /// As [`Planner::answer`]; that with the least bytes if nothing fits.
    pub fn among(requests: &[PlanRequest<'_>]) -> Result<Self> {
        let mut found = Vec::new();
        let mut bound = f64::INFINITY;
        let mut refused: Option<Error> = None;
        for request in requests {
            let mut planner = Planner::new(request)?;
            planner.sharing = requests.len() as u64;
            planner.left /= planner.sharing;
            match planner.best(|_, _| true, f64::INFINITY)? {
                Some((plan, of_request)) => {
                    bound = bound.min(of_request);
                    let fastest = plan.seconds;
                    let plan = planner.simplest(plan)?;
                    found.push((plan, fastest, planner));
                }
                None => {
                    let (other, needed) = (planner.does_not_fit()?, |error: &Error| match error {
                        Error::DoesNotFit { needed, .. } => needed.0,
                        _ => u64::MAX,
                    });
                    if refused.as_ref().is_none_or(|e| needed(&other) < needed(e)) {
                        refused = Some(other);
                    }
                }
            }
        }
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
            let nothing = || Error::PlanRequest("no numbers of replicas to choose from".into());
            return Err(refused.unwrap_or_else(nothing));
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
