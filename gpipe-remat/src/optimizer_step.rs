//! One optimizer step: from the gradients of a batch to the next values.

use gpipe_layers::{Optimizer, clip_factor};
use gpipe_sched::{LossStage, Pipeline};
use gpipe_tensor::Tensors;

use crate::update::{
    apply_update, commit_mini_batch, gradient_norms, merge_ties, share_ties, sum_replicas,
};
use crate::{Error, LayerStage, Result};

/// Statistics of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepStats {
    /// The number of the step, counted from 0.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// The norm of all gradients before they were clipped
    /// ([`gradient_norm`](crate::gradient_norm)).
    pub grad_norm: f64,
    /// The factor of the gradients: 1 unless they were clipped.
    pub clip_factor: f32,
}

/// Updates every parameter from the gradients of the step that `pipeline` has just run. It is all that a
/// training loop does between two batches.
///
/// `step` counts from 0. `clip` is the largest norm of the gradients; a larger one is scaled down to it
/// (0: no limit). A second update without a step between them is made from the same gradients. Before the
/// first step gradients are zeros, and an update changes parameters by weight decay alone.
///
/// In this order:
///
/// 1. gradients of replicas are summed ([`sum_replicas`]), and those of tied places added to those of their owners
///    ([`merge_ties`]);
/// 2. the norm is taken ([`gradient_norm`](crate::gradient_norm)), and a gradient that is not finite
///    refused before any value is changed;
/// 3. owners are updated ([`apply_update`]), and their values given to tied places ([`share_ties`]);
/// 4. layers with state of their own commit what they recorded ([`commit_mini_batch`]). That comes
///    last, so that a step that fails in any stage leaves that state as it was: what was recorded is
///    discarded when the next step begins.
///
/// # Errors
/// [`Error::NonFiniteGradients`], [`Error::Setting`] and, after a step that failed, an [`Error::Pipeline`] whose source is
/// [`Error::Unfinished`], before any parameter is changed;
/// [`first_non_finite`](crate::first_non_finite) finds the origin of non-finite gradients.
/// [`Error::Pipeline`] if a stage fails: parameters may then have been updated in other stages, so
/// training goes on from values that were saved before.
pub fn optimizer_step<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    optimizer: &Optimizer,
    lr: f64,
    step: u64,
    clip: f64,
) -> Result<StepStats> {
    // Updates are computed in single precision.
    let has_lr = (lr as f32).is_finite() && lr >= 0.0;
    let has_clip = clip.is_finite() && clip >= 0.0;
    for (what, value, is_valid) in [
        ("the learning rate", lr, has_lr),
        ("the largest gradient norm", clip, has_clip),
    ] {
        if !is_valid {
            return Err(Error::Setting { what, value });
        }
    }
    sum_replicas(pipeline)?;
    merge_ties(pipeline)?;
    let norms = gradient_norms(pipeline)?;
    let norm = norms.norm.hypot(norms.statistics);
    if !norm.is_finite() {
        return Err(Error::NonFiniteGradients { norm });
    }
    let factor = clip_factor(norms.norm, clip);
    apply_update(pipeline, optimizer, lr, step, factor)?;
    share_ties(pipeline)?;
    commit_mini_batch(pipeline)?;
    Ok(StepStats {
        step,
        lr,
        grad_norm: norms.norm,
        clip_factor: factor,
    })
}
