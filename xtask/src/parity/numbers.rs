//! Numbers in what a script printed, and how far they may be from ours.

use anyhow::Context as _;
use serde_json::Value;

/// How far logits and log-probabilities may be.
pub const LOGITS: f64 = 1e-4;

/// A number that a script printed.
pub fn number(value: &Value) -> anyhow::Result<f64> {
    value
        .as_f64()
        .with_context(|| format!("{value} is no number"))
}
