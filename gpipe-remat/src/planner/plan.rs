//! The result of the planner: a plan and a bound of its distance from the optimum.

use std::ops::Range;

use gpipe_sched::Schedule;

use super::replication::Replication;
use crate::{Bytes, RematPlan};

/// A training plan, and its predicted time and memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the schedule.
    pub order: String,
    /// The worker of each device of the schedule, as listed in the request.
    pub workers: Vec<usize>,
    /// Number of micro-batches.
    pub micro_batches: usize,
    /// The layers of each stage.
    pub cut: Vec<Range<usize>>,
    /// The order of the actions of each stage.
    pub schedule: Schedule,
    /// The tensors that each stage keeps of each micro-batch.
    pub remat_plan: RematPlan,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// Share of the time in which workers are idle.
    pub bubble: f64,
    /// What those seconds consist of.
    pub parts: StepParts,
    /// Replicas and hosts of the plan; `workers` and `micro_batches` are those of one replica.
    pub replication: Replication,
    /// Peak bytes of each stage.
    pub peaks: Vec<u64>,
    /// The same where each replica holds its share of the optimizer state alone (ZeRO 1; Rajbhandari et al. 2020).
    pub sharded_peaks: Vec<u64>,
    /// The stage with the most work.
    pub bottleneck: usize,
    /// The layer of that stage with the most work.
    pub most_expensive: usize,
}

impl Plan {
    /// The micro-batches of all replicas.
    pub fn all_micro_batches(&self) -> usize {
        self.micro_batches * self.replication.replicas
    }
}

/// The seconds of a step, by what they are spent on; they add up to those of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepParts {
    /// Work of the busiest device.
    pub compute: f64,
    /// Waits for other devices that it would have with free links: the bubble.
    pub waiting: f64,
    /// What transfers of activations and their gradients add.
    pub transfers: f64,
    /// Sums of gradients over replicas, as far as the backward pass does not hide them.
    pub sums: f64,
    /// Update of the parameters.
    pub update: f64,
}

/// The plan to use, and bounds of its quality.
#[derive(Clone, Debug)]
pub struct CertifiedPlan {
    /// The fastest plan found, or one that is simpler and, as far as times are known, as fast
    /// ([`PlanRequest::min_gain`](super::PlanRequest::min_gain)).
    pub plan: Plan,
    /// Seconds of the fastest plan found.
    pub fastest: f64,
    /// Lower bound, in seconds, of all requested plans.
    pub bound: f64,
    /// The best plan on one worker, where it fits.
    pub single: Option<f64>,
    /// Seconds with a copy of the model on every worker, each with its share of the batch and all
    /// gradients exchanged, where that fits.
    pub replicas: Option<f64>,
    /// A larger memory with which a step is faster if each worker has at least that much, and its seconds.
    pub with_more: Option<(Bytes, f64)>,
    /// The fastest plans for other numbers of replicas and placements of them, where there was a choice.
    pub alternatives: Vec<Plan>,
}

impl CertifiedPlan {
    /// Upper bound of the relative distance from the optimum; 0 is optimal.
    pub fn gap(&self) -> f64 {
        if self.bound > 0.0 {
            (self.plan.seconds / self.bound - 1.0).max(0.0)
        } else {
            0.0
        }
    }
}
