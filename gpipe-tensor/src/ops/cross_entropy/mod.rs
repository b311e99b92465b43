//! The cross-entropy of logits with target indices.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

pub use cpu::IGNORE;

use super::check::check_divisor;
use super::chunks::own;
use super::deferred_scalar::DeferredScalar;
use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Σ −ln softmax(logits)\[target\] / divisor over the rows whose target is not [`IGNORE`], and the
/// gradient with respect to the logits (…, V), which is written over them if nothing else holds them.
///
/// A row's loss is ln Σⱼ e^xⱼ − x_t, so its gradient is (softmax(x)ⱼ − δⱼₜ)/divisor. The divisor is
/// the caller's: the number of targets of the whole batch makes the sum over its micro-batches their
/// mean. With a divisor of 0 both are 0. Losses are summed in double precision, row by row.
///
/// # Errors
/// [`Error::Index`] for a target that is neither below V nor [`IGNORE`]; [`Error::Shape`] unless
/// the targets have the shape of the logits without the innermost extent; [`Error::Argument`] for a
/// divisor that is negative or not finite; errors of allocation.
pub fn cross_entropy(logits: Tensor, targets: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    let (loss, gradient) = deferred_cross_entropy(logits, targets, divisor)?;
    Ok((loss.read()?, gradient))
}

/// [`cross_entropy`] whose loss is read later.
///
/// # Errors
/// As [`cross_entropy`].
pub fn deferred_cross_entropy(
    logits: Tensor,
    targets: &Tensor,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    smoothed_cross_entropy(logits, targets, 0.0, divisor)
}

/// [`deferred_cross_entropy`] with the distribution 1 − ε at the target and ε/(V − 1) at every other class, where ε
/// is `smoothing` (Szegedy et al., arXiv:1512.00567, in Lingvo's form; PyTorch's `label_smoothing` is ε·V/(V − 1)); a single class
/// has probability 1.
///
/// A row's loss is ln Σⱼ e^xⱼ − (1 − ε)·x_t − ε/(V − 1)·Σ of the other logits, so its gradient is the softmax
/// minus this distribution.
///
/// # Errors
/// As [`cross_entropy`]; [`Error::Argument`] for a smoothing outside of 0..1.
pub fn smoothed_cross_entropy(
    logits: Tensor,
    targets: &Tensor,
    smoothing: f32,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    gradient(logits, targets, None, smoothing, divisor)
}

/// [`smoothed_cross_entropy`] with the loss and the gradient of each row times its weight, a number of single
/// precision from 0 up (Lingvo's `label_weights`). Rows of weight 0 are ignored. The divisor of a mean is
/// the sum of the weights of the whole batch.
///
/// # Errors
/// As [`smoothed_cross_entropy`]; [`Error::Shape`] unless the weights have the shape of the targets.
pub fn weighted_cross_entropy(
    logits: Tensor,
    targets: &Tensor,
    weights: &Tensor,
    smoothing: f32,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    gradient(logits, targets, Some(weights), smoothing, divisor)
}

fn gradient(
    logits: Tensor,
    targets: &Tensor,
    weights: Option<&Tensor>,
    smoothing: f32,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    const OP: &str = "cross_entropy";
    let width = check_labels(OP, &logits, targets)?;
    if let Some(weights) = weights.filter(|weights| weights.shape() != targets.shape()) {
        let expected = format!("weights of the shape of the targets {}", targets.shape());
        return Err(Error::shape(OP, expected, weights.shape()));
    }
    check_divisor(OP, divisor)?;
    let wanted = distribution(OP, smoothing, width)?;
    let mut gradient = own(logits)?;
    if divisor == 0.0 || gradient.elements() == 0 {
        gradient.fill(0.0)?;
        return Ok((DeferredScalar::from(0.0), gradient));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = gradient.gpu().cloned() {
        let loss = cuda::gradient(
            &gpu,
            &mut gradient,
            width,
            targets,
            weights,
            wanted,
            divisor,
        )?;
        return Ok((loss, gradient));
    }
    let (device, targets) = (gradient.device().clone(), targets.u32s()?);
    let weights = weights.map(Tensor::f32s).transpose()?;
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = gradient.f32s_mut()?.chunks_mut(rows * width);
    let chunks = chunks
        .zip(targets.chunks(rows))
        .zip(losses.chunks_mut(rows))
        .enumerate();
    for_each(&device, chunks, |(i, ((logits, targets), losses))| {
        let weights = weights.map(|weights| &weights[i * rows..]);
        cpu::gradient(logits, width, targets, weights, wanted, divisor, losses);
    });
    let loss = losses.iter().sum::<f64>() / divisor;
    Ok((DeferredScalar::from(loss), gradient))
}

/// The loss of [`cross_entropy`] alone, with the same bits: for evaluation.
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_loss(logits: &Tensor, targets: &Tensor, divisor: f64) -> Result<f64> {
    smoothed_cross_entropy_loss(logits, targets, 0.0, divisor)
}

/// The loss of [`smoothed_cross_entropy`] alone, with the same bits.
///
/// # Errors
/// As [`smoothed_cross_entropy`].
pub fn smoothed_cross_entropy_loss(
    logits: &Tensor,
    targets: &Tensor,
    smoothing: f32,
    divisor: f64,
) -> Result<f64> {
    const OP: &str = "cross_entropy_loss";
    let width = check_labels(OP, logits, targets)?;
    check_divisor(OP, divisor)?;
    let wanted = distribution(OP, smoothing, width)?;
    if divisor == 0.0 || logits.elements() == 0 {
        return Ok(0.0);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = logits.gpu() {
        return cuda::losses(gpu, logits, width, targets, wanted, divisor)?.read();
    }
    let targets = targets.u32s()?;
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.chunks(rows));
    for_each(
        logits.device(),
        chunks.zip(losses.chunks_mut(rows)),
        |((logits, targets), losses)| {
            cpu::losses(logits, width, targets, wanted, losses);
        },
    );
    Ok(losses.iter().sum::<f64>() / divisor)
}

/// Number of rows whose largest logit (the first of equal ones) is that of the target; rows whose
/// target is [`IGNORE`] do not count.
///
/// # Errors
/// [`Error::Index`] and [`Error::Shape`] as [`cross_entropy`].
pub fn correct(logits: &Tensor, targets: &Tensor) -> Result<u64> {
    let width = check_labels("correct", logits, targets)?;
    if logits.elements() == 0 {
        return Ok(0);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = logits.gpu() {
        return cuda::correct(gpu, logits, width, targets);
    }
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.u32s()?.chunks(rows));
    let mut counts = vec![0; targets.elements().div_ceil(rows)];
    for_each(
        logits.device(),
        chunks.zip(&mut counts),
        |((logits, targets), count)| {
            *count = cpu::correct(logits, width, targets);
        },
    );
    Ok(counts.iter().sum())
}

/// The distribution that the rows should have.
fn distribution(op: &'static str, smoothing: f32, classes: usize) -> Result<cpu::Wanted> {
    if !(0.0..1.0).contains(&smoothing) {
        let message = format!("a label smoothing of {smoothing}: use a number from 0 to below 1");
        return Err(Error::Argument { op, message });
    }
    Ok(cpu::Wanted::new(smoothing, classes))
}

/// The number of classes; at least 1, so that rows can be cut (without classes there is no valid
/// target, and nothing to compute).
pub(super) fn check_labels(op: &'static str, logits: &Tensor, targets: &Tensor) -> Result<usize> {
    match logits.shape().dims() {
        [rows @ .., classes] if rows == targets.shape().dims() => {
            let bad = |&&target: &&u32| target != IGNORE && target as usize >= *classes;
            match targets.u32s()?.iter().find(bad) {
                Some(&target) => Err(Error::Index {
                    op,
                    index: u64::from(target),
                    len: *classes as u64,
                }),
                None => Ok((*classes).max(1)),
            }
        }
        _ => {
            let expected = format!(
                "targets of the shape of the logits {} without the last extent",
                logits.shape()
            );
            Err(Error::shape(op, expected, targets.shape()))
        }
    }
}

#[cfg(test)]
mod tests;
