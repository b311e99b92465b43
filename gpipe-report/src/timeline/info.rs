//! A run before it begins: machine, devices and stages.

use serde::{Deserialize, Serialize};

/// A run before its first step: where it runs and what its stages are.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInfo {
    /// The machine.
    pub machine: Machine,
    /// The name of the device of each stage, such as `cpu` or `cuda:1`.
    pub devices: Vec<String>,
    /// Bytes that training holds for a parameter: of its value, its gradient and the optimizer's state.
    pub parameter_bytes: [u64; 3],
    /// The stages.
    pub stages: Vec<StageInfo>,
}

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system, such as `linux`.
    pub system: String,
    /// Such as `x86_64`.
    pub architecture: String,
    /// Threads that the machine runs at once.
    pub cores: usize,
    /// Threads that the run uses.
    pub threads: usize,
    /// The most bytes that the process may have, if known.
    pub memory: Option<u64>,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageInfo {
    /// Number of layers.
    pub layers: usize,
    /// The first and the last of them: `block.0 .. block.3`.
    pub names: String,
    /// FLOPs of a step, without recomputation.
    pub flops: u64,
    /// The share of the forward pass that is computed again for the backward pass, from 0 to 1, as
    /// runs of micro-batches: how many, and their share. [`StageInfo::recomputed_runs`] makes them.
    #[serde(rename = "again")]
    pub recomputed: Vec<(usize, f64)>,
    /// The most bytes that the stage may hold, if there is a limit.
    #[serde(rename = "limit")]
    pub limit_bytes: Option<u64>,
    /// Predicted bytes of parameters, gradients and optimizer state.
    #[serde(rename = "fixed")]
    pub fixed_bytes: u64,
    /// Predicted peak bytes.
    #[serde(rename = "peak")]
    pub peak_bytes: u64,
}

impl StageInfo {
    /// [`StageInfo::recomputed`] from the share of each micro-batch.
    ///
    /// ```
    /// use gpipe_report::StageInfo;
    ///
    /// let runs = StageInfo::recomputed_runs([1.0, 1.0, 1.0, 0.0]);
    /// assert_eq!(runs, [(3, 1.0), (1, 0.0)]);
    /// ```
    pub fn recomputed_runs(shares: impl IntoIterator<Item = f64>) -> Vec<(usize, f64)> {
        let mut runs: Vec<(usize, f64)> = Vec::new();
        for share in shares {
            match runs.last_mut() {
                Some((count, last)) if *last == share => *count += 1,
                _ => runs.push((1, share)),
            }
        }
        runs
    }
}
