//! The answer of the planner: a plan, and how far from the best possible it is, at most.

use std::ops::Range;

use gpipe_sched::Schedule;

use crate::{Bytes, RematPlan};

/// How to train, and the predicted time and memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the order of work.
    pub order: String,
    /// The worker of each device of the schedule, as listed in the request.
    pub workers: Vec<usize>,
    /// Number of micro-batches.
    pub micro_batches: usize,
    /// The layers of each stage.
    pub cut: Vec<Range<usize>>,
    /// When each stage works on what.
    pub schedule: Schedule,
    /// What each stage keeps of each micro-batch.
    pub remat_plan: RematPlan,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// Share of the time in which workers idle.
    pub bubble: f64,
    /// Peak bytes of each stage.
    pub peaks: Vec<u64>,
    /// The stage that works longest.
    pub bottleneck: usize,
    /// The layer of that stage that works longest.
    pub most_expensive: usize,
}

/// The plan to use, and what is known about how good it is.
#[derive(Clone, Debug)]
pub struct CertifiedPlan {
    /// The fastest plan found, or one that is simpler and, as far as times are known, as fast
    /// ([`PlanRequest::min_gain`](super::PlanRequest::min_gain)).
    pub plan: Plan,
    /// Seconds of the fastest plan found.
    pub fastest: f64,
    /// Seconds that no plan of those asked for can go below.
    pub bound: f64,
    /// The best plan on one worker, where it fits.
    pub single: Option<f64>,
    /// Seconds with a copy of the model on every worker, each with its share of the batch and all
    /// gradients exchanged, where that fits.
    pub replicas: Option<f64>,
    /// A larger memory of each worker with which a step is faster, and its seconds.
    pub with_more: Option<(Bytes, f64)>,
}

impl CertifiedPlan {
    /// How far above the best possible the plan is, at most: 0 is the best.
    pub fn gap(&self) -> f64 {
        if self.bound > 0.0 {
            (self.plan.seconds / self.bound - 1.0).max(0.0)
        } else {
            0.0
        }
    }
}
