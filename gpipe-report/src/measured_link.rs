//! The object of a link between two ranks.

use serde::Serialize;

/// The link between two neighbouring ranks, as messages took it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredLink {
    /// A rank.
    pub from: usize,
    /// The next one.
    pub to: usize,
    /// Their hosts.
    pub hosts: [String; 2],
    /// Seconds of the smallest message, one way.
    pub latency_seconds: f64,
    /// What a large message adds to that.
    pub bytes_per_second: f64,
}
