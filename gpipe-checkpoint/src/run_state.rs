//! Where a run is: all that goes on with it besides parameters and optimizer state.

use serde::{Deserialize, Serialize};

/// The file `state.json`. Randomness has no state: it is a function of (seed, step).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Steps made so far.
    pub step: u64,
    /// Samples drawn so far: where in the data the next step begins.
    pub samples: u64,
    /// The SHA-256 digest of the data, in hexadecimal digits.
    pub text: String,
    /// The loss on the held-out samples, if they were evaluated after this step.
    pub held_out_loss: Option<f64>,
    /// The best evaluation so far whose checkpoint was saved.
    pub best: Option<Best>,
    /// The instruction set of the processor, on which the bits of a matrix product depend.
    pub processor: String,
    /// The version of the program that saved.
    pub version: String,
}

/// An evaluation on the held-out samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// After this step.
    pub step: u64,
    /// Mean over the held-out targets.
    pub loss: f64,
}
