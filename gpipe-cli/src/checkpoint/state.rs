//! Where a run is: all that goes on with it besides parameters and what the optimizer remembers.

use serde::{Deserialize, Serialize};

/// The file `state.json`. Randomness has no state: it is a function of (seed, step).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Steps that were made.
    pub step: u64,
    /// Samples that were drawn: where in the data the next step begins.
    pub samples: u64,
    /// The SHA-256 digest of the text.
    pub text: String,
    /// The loss on the held-out samples, if they were evaluated after this step.
    pub held_out_loss: Option<f64>,
    /// The best evaluation so far whose checkpoint was saved.
    pub best: Option<Best>,
    /// The instructions of the processor, on which the bits of a matrix product depend.
    pub processor: String,
    /// The version of gpipe.
    pub version: String,
}

/// An evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// After this step.
    pub step: u64,
    /// Mean over the held-out targets.
    pub loss: f64,
}

/// This program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
