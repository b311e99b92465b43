//! What can go wrong in this crate.

use gpipe_sched::Action;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a stage, a plan or an update refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A layer failed.
    #[error(transparent)]
    Layer(#[from] gpipe_layers::Error),
    /// An operation on tensors failed outside of a layer.
    #[error(transparent)]
    Tensor(#[from] gpipe_tensor::Error),
    /// A schedule could not be made.
    #[error(transparent)]
    Schedule(#[from] gpipe_sched::ScheduleError),
    /// The text names no policy.
    #[error(
        "unknown rematerialization `{0}`: use keep, stage, except-last, every:N with N from 1, or \
         budget:BYTES such as budget:8GiB"
    )]
    UnknownPolicy(String),
    /// The text is no amount of memory.
    #[error(transparent)]
    Bytes(#[from] crate::BytesError),
    /// A stage does not fit its budget, whatever it keeps.
    #[error(
        "stage {stage} needs at least {mend}, {} of it for parameters, gradients and the optimizer, \
         but the budget is {budget}: use budget:{mend} or more, more stages, or smaller micro-batches",
        fixed.rounded_up(),
        mend = needed.rounded_up()
    )]
    Budget {
        /// The stage.
        stage: usize,
        /// The least that it can do with.
        needed: crate::Bytes,
        /// Values, gradients and what the optimizer remembers.
        fixed: crate::Bytes,
        /// The bytes of the budget.
        budget: crate::Bytes,
    },
    /// A batch cannot be cut like this.
    #[error(
        "{micro_batches} micro-batches but {samples} samples: use 1 to {samples} micro-batches"
    )]
    MicroBatches {
        /// Micro-batches asked for.
        micro_batches: usize,
        /// Samples in the batch.
        samples: usize,
    },
    /// What a planner was asked makes no sense.
    #[error("{0}")]
    PlanRequest(String),
    /// No plan fits the memory of the workers.
    #[error(
        "the model does not fit by {}: no cut, schedule or recomputation needs less than {mend} a worker, \
         but {limit} is the limit: use --memory {mend} or more, more workers, or a smaller batch",
        short.rounded_up(),
        mend = needed.rounded_up()
    )]
    DoesNotFit {
        /// What a worker has.
        limit: crate::Bytes,
        /// With this, something would fit.
        needed: crate::Bytes,
        /// What is missing.
        short: crate::Bytes,
    },
    /// Layers could not be cut into stages.
    #[error(transparent)]
    Partition(#[from] gpipe_partition::Error),
    /// Gradients are not finite, so no parameter was changed.
    #[error("the norm of the gradients is {norm}: no parameter was changed")]
    NonFiniteGradients {
        /// The norm of all gradients, statistics included.
        norm: f64,
    },
    /// A value of a training step is not finite, so no parameter was changed.
    #[error("{0}: no parameter was changed; use a lower learning rate, or clip the gradients")]
    NonFinite(crate::NonFinite),
    /// A number that an optimizer step cannot use.
    #[error("{what} is {value}: use a finite number from 0 up")]
    Setting {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// What was to be put into a pipeline does not fit its model.
    #[error("parameter {name}: {message}")]
    Parameter {
        /// The global name.
        name: String,
        /// What does not fit.
        message: String,
    },
    /// The pipeline failed while it was visited.
    #[error(transparent)]
    Pipeline(#[from] gpipe_sched::PipelineError),
    /// The parts do not fit each other: layers, cut, schedule and devices.
    #[error("{0}")]
    Assembly(String),
    /// An action came at a moment at which the micro-batch is not ready for it.
    #[error("{action}: {found}, but this action needs {needed}")]
    Order {
        /// The action.
        action: Action,
        /// What the stage needs to hold of the micro-batch.
        needed: &'static str,
        /// What it holds.
        found: &'static str,
    },
}
