//! The parts of a pipeline that run code of the caller.

use std::fmt;

/// The part of a pipeline that was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A stage, counted from 0.
    Stage(usize),
    /// The loss stage, after the last stage.
    LossStage,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage(stage) => write!(f, "stage {stage}"),
            Self::LossStage => f.write_str("the loss stage"),
        }
    }
}
