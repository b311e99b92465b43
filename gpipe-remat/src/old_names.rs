//! Functions under the names and with the arguments that they had before.

use std::ops::Range;

use gpipe_layers::Optimizer;
use gpipe_sched::PipelineError;

use crate::planner::{Costed, Described};
use crate::{ModelPipeline, Result, apply_update};

/// [`apply_update`] whose `step` counts from 1.
///
/// # Errors
/// As [`apply_update`].
pub fn update(
    pipeline: &mut ModelPipeline,
    optimizer: &Optimizer,
    lr: f64,
    step: u64,
    factor: f32,
) -> std::result::Result<(), PipelineError> {
    apply_update(pipeline, optimizer, lr, step.saturating_sub(1), factor)
}

impl Described {
    /// [`Described::costed`].
    ///
    /// # Errors
    /// As [`Described::costed`].
    #[doc(hidden)]
    pub fn priced(layers: &[Self], micro_batches: &[Range<usize>]) -> Result<Costed> {
        Self::costed(layers, micro_batches)
    }
}
