//! How a step, an evaluation or a visit ends badly, and where.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::watchdog::{All, Stuck};
use crate::schedule::action::Action;
use crate::schedule::fault::ScheduleError;

/// Who was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A stage, from 0.
    Stage(usize),
    /// The loss stage, after the last stage.
    Turn,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage(stage) => write!(f, "stage {stage}"),
            Self::Turn => f.write_str("the loss stage"),
        }
    }
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A stage or the loss stage was being made.
    Build(Part),
    /// A step was about to begin.
    Begin(Part),
    /// An action of a stage.
    Action(Action),
    /// The loss of a micro-batch.
    Turn {
        /// The micro-batch.
        micro_batch: usize,
    },
    /// A step was about to end.
    Finish(Part),
    /// A closure of the caller.
    Visit(Part),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(part) => write!(f, "{part}, being made"),
            Self::Begin(part) => write!(f, "{part}, beginning a step"),
            Self::Action(action) => {
                let Action {
                    stage,
                    op,
                    micro_batch,
                } = action;
                write!(
                    f,
                    "stage {stage}, micro-batch {micro_batch}, {op} ({action})"
                )
            }
            Self::Turn { micro_batch } => write!(f, "the loss stage, micro-batch {micro_batch}"),
            Self::Finish(part) => write!(f, "{part}, finishing a step"),
            Self::Visit(part) => write!(f, "{part}, visited"),
        }
    }
}

/// Why a pipeline did not do what it was asked. Unless a worker is [gone](Self::Gone), the pipeline
/// stays usable: the next step starts afresh.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A stage or the loss stage gave an error.
    #[error("{place}: {source}")]
    Failed {
        /// Where.
        place: Place,
        /// The error it gave.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A stage or the loss stage panicked.
    #[error("{place}: panicked: {message}")]
    Panicked {
        /// Where.
        place: Place,
        /// What it said.
        message: String,
    },
    /// Nothing came back for the stage before, which waits for a gradient.
    #[error("{place}: gave no gradient, but the stage before it needs one: return Some")]
    NoGradient {
        /// Where.
        place: Place,
    },
    /// A flow had no place to go to or came twice.
    #[error("{0}: sent twice, or not part of this step")]
    Misdelivered(String),
    /// The items are not what the schedule asks for.
    #[error("{0}")]
    Batch(String),
    /// There is no such schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The operating system gave no thread.
    #[error("the worker of device {device} could not start: {source}")]
    Thread {
        /// Whose worker.
        device: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A step was not over when its deadline came.
    #[error(
        "not over after {seconds:.1} s: {}: raise the deadline, or look at who is named first",
        All(stuck)
    )]
    Overdue {
        /// How long it had taken.
        seconds: f64,
        /// The workers that had not come to their end.
        stuck: Vec<Stuck>,
    },
    /// A worker has died or was left behind, and its stages with it: build the pipeline again.
    #[error("the worker of device {device} is gone: build the pipeline again")]
    Gone {
        /// Whose worker.
        device: usize,
    },
}

impl PipelineError {
    /// Where it happened, if it was at work.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Failed { place, .. }
            | Self::Panicked { place, .. }
            | Self::NoGradient { place } => Some(*place),
            _ => None,
        }
    }
}

/// Runs foreign code; whatever ends it badly becomes an error with its place.
pub(crate) fn guard<R, E: Into<Box<dyn Error + Send + Sync>>>(
    place: Place,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R, PipelineError> {
    // What a panic left half done is the stage's own, and `Stage::begin` clears it.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(PipelineError::Failed {
            place,
            source: error.into(),
        }),
        Err(panic) => Err(PipelineError::Panicked {
            place,
            message: message(panic.as_ref()),
        }),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it said nothing").to_owned()
}
