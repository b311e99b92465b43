//! What predicted times rest on.

use serde::Serialize;

/// What predicted times rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// FLOPs and bytes, at the speed of a short measurement or at one that was given.
    Estimate,
    /// The data sheet of a GPU.
    DataSheet,
    /// A model of a GPU, for each launch of a kernel: predicted, not measured.
    Model,
    /// The layers, measured one kind at a time.
    Profile,
    /// A list of costs.
    Costs,
}

impl Basis {
    /// Times as text, which say so if they are no more than an estimate.
    pub fn said_of(self, time: String) -> String {
        match self {
            Self::Estimate => time + " (estimate)",
            Self::DataSheet => time + " (data sheet)",
            Self::Model => time + " (model)",
            Self::Profile | Self::Costs => time,
        }
    }
}
