//! Errors of steps, evaluations and visits, and where they occur.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::part::Part;
use crate::executor::watchdog::{All, Stuck};
use crate::schedule::action::Action;
use crate::schedule::fault::ScheduleError;

/// Where a failure occurred: a part of the pipeline and what it was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Building a stage or the loss stage.
    Build(Part),
    /// `begin`, before the first action of a step.
    Begin(Part),
    /// An action of a stage.
    Action(Action),
    /// The loss of one micro-batch.
    Loss {
        /// The micro-batch.
        micro_batch: usize,
    },
    /// `finish`, `ran` or `losses`, after the last action of a step.
    Finish(Part),
    /// A closure of the caller, on the part's thread.
    Visit(Part),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(part) => write!(f, "building {part}"),
            Self::Begin(part) => write!(f, "{part}, at the beginning of a step"),
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
            Self::Loss { micro_batch } => write!(f, "the loss stage, micro-batch {micro_batch}"),
            Self::Finish(part) => write!(f, "{part}, at the end of a step"),
            Self::Visit(part) => write!(f, "{part}, in a visit"),
        }
    }
}

/// Failure of a call to a pipeline. Unless a worker is [gone](Self::Gone), the pipeline stays
/// usable: the next step starts from a clean state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A stage or the loss stage returned an error.
    #[error("{place}: {source}")]
    Failed {
        /// Where it failed.
        place: Place,
        /// The error returned.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A stage or the loss stage panicked.
    #[error("{place}: panicked: {message}")]
    Panicked {
        /// Where it failed.
        place: Place,
        /// The message of the panic.
        message: String,
    },
    /// A part returned `None`, but the previous stage waits for a gradient.
    #[error("{place}: no gradient returned, but the previous stage needs one: return Some")]
    NoGradient {
        /// Where it failed.
        place: Place,
    },
    /// A flow is not part of the step, or was sent twice.
    #[error("{0}: sent twice, or not part of this step")]
    Misdelivered(String),
    /// The items do not match the schedule.
    #[error("{0}")]
    Batch(String),
    /// The schedule of an evaluation cannot be built.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The operating system refused to start a thread.
    #[error(
        "the worker of device {device} cannot start a thread: {source}: raise the limit of threads \
         (ulimit -u, or pids of the container)"
    )]
    Thread {
        /// The worker's device.
        device: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// A step, an evaluation or a visit was not finished at its deadline.
    #[error(
        "not finished after {seconds:.1} s: {}: raise the deadline, or look at the worker named first",
        All(stuck)
    )]
    Overdue {
        /// Seconds since the start of the call.
        seconds: f64,
        /// The workers that had not finished, busy ones first.
        stuck: Vec<Stuck>,
    },
    /// A rank of the run failed, or its messages do not arrive.
    #[error("rank {rank} ({host}): {message}")]
    Remote {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Its error.
        message: String,
    },
    /// A message to or from a rank that is not another one of the run.
    #[error(
        "rank {rank} of {ranks} has no messages with rank {peer}: name another rank below {ranks}"
    )]
    NoPeer {
        /// The rank that called.
        rank: usize,
        /// The rank that it named.
        peer: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// A part of the pipeline is visited that lies on another rank.
    #[error("{part} is on rank {rank}: visit it with `with_loss_stage_across`")]
    Elsewhere {
        /// The part.
        part: Part,
        /// Its rank.
        rank: usize,
    },
    /// A flow cannot be sent to another rank.
    #[error("{transfer}: not sent to another rank: {message}")]
    Unsent {
        /// The flow.
        transfer: String,
        /// Why.
        message: String,
    },
    /// A worker has died or was abandoned at a deadline, with its stages: build the pipeline again.
    #[error("the worker of device {device} is gone: build the pipeline again")]
    Gone {
        /// The worker's device.
        device: usize,
    },
}

impl PipelineError {
    /// Where the failure occurred, for failures of a stage or the loss stage.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Failed { place, .. }
            | Self::Panicked { place, .. }
            | Self::NoGradient { place } => Some(*place),
            _ => None,
        }
    }
}

/// Runs code of a stage; its error or panic becomes a [`PipelineError`] with its place.
pub(crate) fn guard<R, E: Into<Box<dyn Error + Send + Sync>>>(
    place: Place,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R, PipelineError> {
    // The conversion is code of the caller too.
    let done = catch(place, || work().map_err(Into::into))?;
    done.map_err(|source| PipelineError::Failed { place, source })
}

/// [`guard`] of code that has errors of its own or none: its panic alone is taken.
pub(crate) fn catch<R>(place: Place, work: impl FnOnce() -> R) -> Result<R, PipelineError> {
    // A panic can only leave the stage's own state inconsistent; `Stage::begin` clears it.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| PipelineError::Panicked {
        place,
        message: message(panic.as_ref()),
    })
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// Whether an error, or what it comes from, is that of another rank.
pub(crate) fn is_of_another_rank(error: &PipelineError) -> bool {
    let mut error: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(at) = error {
        if let Some(PipelineError::Remote { .. }) = at.downcast_ref() {
            return true;
        }
        error = at.source();
    }
    false
}
