//! A plan of replicas on hosts.

use serde::Serialize;

use crate::basis::Basis;
use crate::numbers;

/// A number of replicas, the fastest pipeline for it, and what a step of them costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicatedPlan {
    /// Replicas of the pipeline.
    pub replicas: usize,
    /// `pipelines` where the workers of a replica are neighbours, `stages` where those of a stage are.
    pub placement: &'static str,
    /// Workers of a replica.
    pub workers: usize,
    /// Stages of a replica.
    pub stages: usize,
    /// Micro-batches of all replicas.
    pub micro_batches: usize,
    /// Schedule, as `--schedule` takes it.
    pub schedule: String,
    /// Rematerialization, as `--remat` takes it.
    pub remat: String,
    /// Predicted seconds of a step: the sum of the next five.
    pub step_seconds: f64,
    /// Work of the busiest worker.
    pub compute_seconds: f64,
    /// The bubble.
    pub waiting_seconds: f64,
    /// What transfers between stages add.
    pub transfer_seconds: f64,
    /// Sums of gradients over replicas, as far as they are not hidden behind the backward pass.
    pub sum_seconds: f64,
    /// Update of the parameters.
    pub update_seconds: f64,
    /// Predicted peak bytes of each stage.
    pub peak_bytes: Vec<u64>,
    /// The same with the optimizer state shared out over the replicas (ZeRO 1).
    pub sharded_peak_bytes: Vec<u64>,
}

impl ReplicatedPlan {
    /// The headings of [`row`](Self::row).
    pub const HEADING: [&'static str; 10] = [
        "replicas",
        "neighbours",
        "stages",
        "M",
        "schedule",
        "step",
        "bubble",
        "sums",
        "peak",
        "ZeRO 1",
    ];

    /// The plan as a row of a table.
    pub fn row(&self, basis: Basis) -> Vec<String> {
        let largest = |bytes: &[u64]| numbers::bytes(bytes.iter().copied().max().unwrap_or(0));
        let share = |seconds: f64| numbers::percent(seconds / self.step_seconds);
        vec![
            self.replicas.to_string(),
            self.placement.to_owned(),
            self.stages.to_string(),
            self.micro_batches.to_string(),
            self.schedule.clone(),
            basis.said_of(numbers::step_time(self.step_seconds)),
            share(self.waiting_seconds),
            share(self.sum_seconds),
            largest(&self.peak_bytes),
            largest(&self.sharded_peak_bytes),
        ]
    }

    /// What a step consists of, and the bytes with the optimizer state shared out, as lines.
    pub fn lines(&self) -> [String; 2] {
        let parts = [
            ("compute", self.compute_seconds),
            ("bubble", self.waiting_seconds),
            ("transfers", self.transfer_seconds),
            ("sums over replicas", self.sum_seconds),
            ("update", self.update_seconds),
        ];
        let parts = parts.map(|(name, seconds)| format!("{name} {}", numbers::step_time(seconds)));
        let sharded = self.sharded_peak_bytes.iter().copied().max().unwrap_or(0);
        [
            parts.join(", "),
            format!(
                "{} with the optimizer state shared out over {} (ZeRO 1)",
                numbers::bytes(sharded),
                numbers::counted(self.replicas as u64, "replica")
            ),
        ]
    }
}
