//! The names of flows.

use crate::schedule::transfer::Transfer;

/// The name of a flow: its step, and its transfer within the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Number of the step or evaluation in the pipeline's life, so that a flow left by a failed
    /// step cannot be taken for one of the next.
    pub epoch: u64,
    pub transfer: Transfer,
}
