//! What can go wrong in this crate.

use std::fmt;

use gpipe_sched::{Action, Portal, Schedule};

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a stage, a plan or an update.
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
    /// The text is not the name of a policy.
    #[error(
        "unknown rematerialization `{0}`: use keep, stage, except-last, every:N with N from 1, or \
         budget:BYTES such as budget:8GiB"
    )]
    UnknownPolicy(String),
    /// The text is not an amount of memory.
    #[error(transparent)]
    Bytes(#[from] crate::BytesError),
    /// A stage does not fit its budget: no choice of what it keeps was found that does.
    #[error(
        "stage {stage} does not fit the budget of {budget}: nothing was found that needs less than {mend}, {} of it for \
         parameters, gradients and the optimizer: use `pipeline.remat = budget:{mend}` or more",
        fixed.rounded_up(),
        mend = needed.rounded_up()
    )]
    Budget {
        /// The stage.
        stage: usize,
        /// Bytes with which it fits: the fewest that were found, which are enough.
        needed: crate::Bytes,
        /// Bytes of values, gradients and optimizer states.
        fixed: crate::Bytes,
        /// The bytes of the budget.
        budget: crate::Bytes,
    },
    /// A batch cannot be cut like this.
    #[error("{micro_batches} micro-batches but {samples} samples: {}", enough(*samples))]
    MicroBatches {
        /// Micro-batches asked for.
        micro_batches: usize,
        /// Samples in the batch.
        samples: usize,
    },
    /// Micro-batches cannot be put into as many groups.
    #[error(
        "{groups} groups but {micro_batches} micro-batches: use `pipeline.groups = {micro_batches}` or fewer, \
         1 at least"
    )]
    Groups {
        /// Groups asked for.
        groups: usize,
        /// Micro-batches of a step.
        micro_batches: usize,
    },
    /// The request to a planner is invalid.
    #[error("{0}")]
    PlanRequest(String),
    /// No plan fits the memory of the workers.
    #[error("{}: use `pipeline.memory = {}` or more", .0, .0.needed.rounded_up())]
    DoesNotFit(DoesNotFit),
    /// Layers could not be cut into stages.
    #[error(transparent)]
    Partition(#[from] gpipe_partition::Error),
    /// Gradients are not finite, so no parameter was changed.
    #[error("the norm of the gradients is {norm}: no parameter was changed")]
    NonFiniteGradients {
        /// The norm of all gradients, statistics included.
        norm: f64,
    },
    /// The step before an update failed, so no parameter was changed.
    #[error(
        "the last step failed and left the gradients of a part of its batch: no parameter was changed; run a step again \
         before the update"
    )]
    Unfinished,
    /// A value of a training step is not finite, so no parameter was changed.
    #[error("{0}: no parameter was changed; {mend}", mend = .0.mend())]
    NonFinite(crate::NonFinite),
    /// An invalid setting of an optimizer step.
    #[error("{what} is {value}: use a number from 0 to 3.4e38")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Tensors that were to be put into a pipeline do not fit its model.
    #[error("parameter {name}: {message}")]
    Parameter {
        /// The global name.
        name: String,
        /// What does not fit.
        message: String,
    },
    /// The pipeline failed while it was visited. Its error is the source, not hidden as that of a transparent one:
    /// the failure of another rank is found among the sources.
    #[error("{0}")]
    Pipeline(#[from] gpipe_sched::PipelineError),
    /// The parts do not fit each other: layers, cut, schedule and devices.
    #[error("{0}")]
    Assembly(String),
    /// The micro-batch is not in the state that an action needs.
    #[error("{action}: {found}, but this action needs {needed}")]
    Order {
        /// The action.
        action: Action,
        /// The state of the micro-batch that the action needs.
        needed: &'static str,
        /// Its actual state.
        found: &'static str,
    },
    /// A portal holds no tensor that is to be taken, or one where another is to be put.
    #[error(
        "the portal from stage {} to stage {}: {tensors} of micro-batch {micro_batch} {fault}",
        .portal.from,
        .portal.to
    )]
    Portal {
        /// The portal.
        portal: Portal,
        /// Activations or gradients.
        tensors: &'static str,
        /// The micro-batch.
        micro_batch: usize,
        /// What is wrong.
        fault: &'static str,
    },
}

/// The mend for a batch of `samples` samples that cannot be cut.
fn enough(samples: usize) -> String {
    match samples {
        0 => "give the batch a sample or more".to_owned(),
        samples => format!(
            "use 1 to {} micro-batches",
            samples.min(Schedule::MAX_CELLS)
        ),
    }
}

/// What a model misses that does not fit any worker, without a mend: the limit may come from elsewhere than a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoesNotFit {
    /// Memory of a worker.
    pub limit: crate::Bytes,
    /// Memory with which some plan fits.
    pub needed: crate::Bytes,
    /// What is missing.
    pub short: crate::Bytes,
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            needed,
            short,
        } = self;
        write!(
            f,
            "the model does not fit by {}: no plan was found that needs less than {} a worker, but {} is the limit",
            short.rounded_up(),
            needed.rounded_up(),
            limit.rounded()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit of a GPU has no whole number of large units.
    #[test]
    fn limits_are_rounded() {
        let fault = DoesNotFit {
            limit: crate::Bytes(80_000_000_000),
            needed: crate::Bytes(90 << 30),
            short: crate::Bytes(15 << 30),
        };
        assert!(fault.to_string().ends_with(", but 74.5GiB is the limit"));
    }

    /// A caller whose limit is no configuration key puts its own mend behind the fault.
    #[test]
    fn a_fault_is_told_without_its_mend() {
        let fault = DoesNotFit {
            limit: crate::Bytes(1 << 20),
            needed: crate::Bytes(3 << 20),
            short: crate::Bytes(2 << 20),
        };
        assert_eq!(
            fault.to_string(),
            "the model does not fit by 2MiB: no plan was found that needs less than 3MiB a worker, but 1MiB is the \
             limit"
        );
        assert_eq!(
            Error::DoesNotFit(fault).to_string(),
            format!("{fault}: use `pipeline.memory = 3MiB` or more")
        );
    }
}
