//! A portal of a plan.

use serde::Serialize;

/// Where tensors go past whole stages: straight from the stage that gives them to the one that takes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedPortal {
    /// The stage that gives the tensors.
    pub from: usize,
    /// The stage that takes them, at least two behind `from`.
    pub to: usize,
    /// Bytes of a training step, activations and their gradients.
    pub step_bytes: u64,
    /// Bytes that suffice for everything in transit at a time, however long actions take.
    pub transit_bytes: u64,
}
