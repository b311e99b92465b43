//! Plans of replicas on hosts, as they are reported and launched.

use gpipe_remat::planner::{CertifiedPlan, Placement, Plan, StepParts};
use gpipe_report::ReplicatedPlan;

use super::recommender::Recommender;

impl Recommender {
    /// The recommended plan and those of other numbers of replicas, the fastest first; none without hosts.
    pub fn replications(&self, answer: &CertifiedPlan) -> Vec<ReplicatedPlan> {
        let plans = std::iter::once(&answer.plan).chain(&answer.alternatives);
        let plans = plans.filter(|_| self.hosts().is_some());
        plans.map(|plan| self.replicated(plan)).collect()
    }

    fn replicated(&self, plan: &Plan) -> ReplicatedPlan {
        let StepParts {
            compute,
            waiting,
            transfers,
            sums,
            update,
        } = plan.parts;
        ReplicatedPlan {
            replicas: plan.replication.replicas,
            placement: match plan.replication.placement {
                Placement::Pipelines => "pipelines",
                Placement::Stages => "stages",
            },
            workers: plan.workers.len(),
            stages: plan.cut.len(),
            micro_batches: plan.all_micro_batches(),
            schedule: plan.order.clone(),
            remat: self.remat(plan).to_string(),
            step_seconds: plan.seconds,
            compute_seconds: compute,
            waiting_seconds: waiting,
            transfer_seconds: transfers,
            sum_seconds: sums,
            update_seconds: update,
            peak_bytes: plan.peaks.clone(),
            sharded_peak_bytes: plan.sharded_peaks.clone(),
        }
    }

    /// The launcher in front of the command that runs a plan on hosts, with one rank a worker; empty without hosts.
    pub fn launcher(&self, plan: &Plan) -> String {
        match self.launched() {
            Some(hosts) => {
                let (workers, replication) = (plan.workers.len(), plan.replication);
                // With as many hosts as stages, ranks go round the hosts.
                let is_round = replication.placement == Placement::Stages && workers == hosts.count;
                format!(
                    "mpirun {}-np {} ",
                    if is_round { "--map-by node " } else { "" },
                    workers * replication.replicas
                )
            }
            None => String::new(),
        }
    }
}
