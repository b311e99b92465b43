//! Plans of replicas on hosts, as they are reported and launched.

use gpipe_remat::Policy;
use gpipe_remat::planner::{CertifiedPlan, Placement, Plan, PlanRequest, StepParts};
use gpipe_report::ReplicatedPlan;

use super::hosts::Hosts;
use super::recommender::Recommender;
use crate::error::{Error, Result};

impl Recommender {
    /// The recommended plan on hosts, with the best of each number of replicas and placement.
    pub(super) fn recommend_on(&self, hosts: Hosts, policy: Policy) -> Result<CertifiedPlan> {
        let all = self.workers.len();
        let numbers = match self.replicas {
            Some(replicas) => replicas..=replicas,
            None => 1..=all.min(self.batch),
        };
        let most = match self.space.has_table {
            true => 1,
            false => self.batch,
        };
        let ways = numbers.filter(|&replicas| replicas <= most);
        let ways = ways.flat_map(|replicas| hosts.replications(&self.workers, replicas));
        let ways = ways.map(|(replication, workers)| {
            let weights = match self.is_sharded {
                true => self.weights.clone().largest_shards(replication.replicas),
                false => self.weights.clone(),
            };
            (replication, workers, weights)
        });
        let ways: Vec<_> = ways.collect();
        let requests = ways
            .iter()
            .map(|(replication, workers, weights)| PlanRequest {
                micro_batches: self.space.of_replica(replication.replicas, self.batch),
                replication: *replication,
                workers: workers.clone(),
                weights,
                ..self.request(vec![policy])
            });
        let requests: Vec<_> = requests.filter(|r| !r.micro_batches.is_empty()).collect();
        if requests.is_empty() {
            return Err(Error::invalid(format!(
                "no plan for `pipeline.replicas = {}` and {} micro-batches on {} hosts with {all} workers: each replica \
                 has as many workers and micro-batches, and no table of actions; leave one of the two out",
                self.replicas.unwrap_or(1),
                self.space.micro_batches[0],
                hosts.count
            )));
        }
        CertifiedPlan::among(&requests).map_err(|error| self.refused(error))
    }

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
                let order = match replication.placement {
                    Placement::Pipelines => "",
                    // With as many hosts as stages, ranks go round the hosts.
                    Placement::Stages if workers == hosts.count => "--map-by node ",
                    // Otherwise a file of the user's says where each rank is.
                    Placement::Stages => "--map-by rankfile:file=RANKS ",
                };
                format!("mpirun {order}-np {} ", workers * replication.replicas)
            }
            None => String::new(),
        }
    }
}
