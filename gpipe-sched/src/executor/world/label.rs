//! Labels: how a rank names a message that it posts, and another one takes it.

use std::fmt;

/// The name of a message from one rank to another: no two that are not taken have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The number of a call ([`World::call`](crate::World::call)), or [`Label::OF_NO_CALL`].
    pub call: u64,
    /// Such as a stage.
    pub place: usize,
    /// Such as a layer.
    pub part: usize,
}

impl Label {
    /// For messages that belong to no call: they outlast the calls, failed ones too, and nobody polls for them.
    pub const OF_NO_CALL: u64 = u64::MAX;
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Self::OF_NO_CALL => f.write_str("no call")?,
            call => write!(f, "call {call}")?,
        }
        write!(f, ", place {}, part {}", self.place, self.part)
    }
}
