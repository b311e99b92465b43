//! The cross-entropy on a GPU: launches.

use super::cpu::Wanted;
use super::kernels;
use crate::cuda::Gpu;
use crate::ops::deferred_scalar::DeferredScalar;
use crate::{DType, Result, Tensor};

/// The loss; the gradient overwrites the logits. Without weights, every row has 1.
pub(super) fn gradient(
    gpu: &Gpu,
    logits: &mut Tensor,
    width: usize,
    targets: &Tensor,
    weights: Option<&Tensor>,
    wanted: Wanted,
    divisor: f64,
) -> Result<DeferredScalar> {
    const OP: &str = "cross_entropy";
    let rows = targets.elements();
    let losses = gpu.alloc(8 * rows)?;
    let stored = logits.dtype();
    let at = logits.written_rows(OP, gpu, stored)?;
    let targets = targets.operand(OP, gpu, DType::U32)?;
    let to = losses.at(0);
    let sizes = [rows, width, logits.shape().row_stride()];
    let weights = weights
        .map(|weights| weights.operand(OP, gpu, DType::F32))
        .transpose()?;
    let shared = gpu.most_shared();
    let launch = match &weights {
        None => {
            let pointers = [at, targets.at, to];
            kernels::gradient(stored, pointers, sizes, wanted, divisor, shared)
        }
        Some(weights) => {
            let pointers = [at, targets.at, weights.at, to];
            kernels::weighted_gradient(stored, pointers, sizes, wanted, divisor, shared)
        }
    };
    // SAFETY: all live on this handle; there is a target, less than `width`, a weight if there are any, and a
    // loss for each of the rows of `width` logits.
    unsafe { gpu.launch(&launch) }?;
    Ok(DeferredScalar::on_device(losses, rows, divisor))
}

/// The loss alone.
pub(super) fn losses(
    gpu: &Gpu,
    logits: &Tensor,
    width: usize,
    targets: &Tensor,
    wanted: Wanted,
    divisor: f64,
) -> Result<DeferredScalar> {
    const OP: &str = "cross_entropy_loss";
    let rows = targets.elements();
    let losses = gpu.alloc(8 * rows)?;
    let stored = logits.dtype();
    let sizes = [rows, width, logits.shape().row_stride()];
    let logits = logits.operand_rows(OP, gpu, stored)?;
    let targets = targets.operand(OP, gpu, DType::U32)?;
    let to = losses.at(0);
    // SAFETY: as above.
    unsafe {
        gpu.launch(&kernels::losses(
            stored,
            [logits.at, targets.at, to],
            sizes,
            wanted,
        ))
    }?;
    Ok(DeferredScalar::on_device(losses, rows, divisor))
}

/// Number of rows whose largest logit is that of the target.
pub(super) fn correct(gpu: &Gpu, logits: &Tensor, width: usize, targets: &Tensor) -> Result<u64> {
    const OP: &str = "correct";
    let rows = targets.elements();
    let hits = gpu.alloc(4 * rows)?;
    let stored = logits.dtype();
    let sizes = [rows, width, logits.shape().row_stride()];
    let logits = logits.operand_rows(OP, gpu, stored)?;
    let targets = targets.operand(OP, gpu, DType::U32)?;
    let to = hits.at(0);
    // SAFETY: as above, with a count in the place of the loss.
    unsafe { gpu.launch(&kernels::correct(stored, logits.at, targets.at, to, sizes)) }?;
    let hits = hits.read(0, rows, u32::from_ne_bytes)?;
    Ok(hits.into_iter().map(u64::from).sum())
}
