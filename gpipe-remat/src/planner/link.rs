//! Links between workers, and between hosts.

/// The time of a transfer between two workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds.
    pub latency: f64,
    /// May be infinite.
    pub bytes_per_second: f64,
}

impl Link {
    /// A link without transfer time.
    pub const FREE: Self = Self {
        latency: 0.0,
        bytes_per_second: f64::INFINITY,
    };
}
