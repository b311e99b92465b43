//! Bytes held by a stage after an action, and by a device over time.

/// The bytes that a stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// Bytes at the end of an action.
    pub now: u64,
    /// The maximum since the end of the previous action.
    pub most: u64,
}

/// The bytes held by a device from a time on, until its next level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The device.
    pub device: usize,
    /// Seconds since the step began.
    pub time: f64,
    /// The bytes held.
    pub bytes: u64,
}
