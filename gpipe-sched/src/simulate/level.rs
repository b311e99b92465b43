//! Bytes held: of a stage after an action, and of a device over time.

/// The bytes that a stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// At the end of an action.
    pub now: u64,
    /// The most since the end of the action before it.
    pub most: u64,
}

/// The bytes of a device from a moment on, until its next level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Whose.
    pub device: usize,
    /// Seconds since the step began.
    pub time: f64,
    /// How many.
    pub bytes: u64,
}
