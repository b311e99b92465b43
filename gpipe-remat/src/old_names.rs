//! Functions under the names and with the arguments that they had before.

use gpipe_layers::Optimizer;
use gpipe_sched::PipelineError;

use crate::{ModelPipeline, apply_update};

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
) -> Result<(), PipelineError> {
    apply_update(pipeline, optimizer, lr, step.saturating_sub(1), factor)
}
