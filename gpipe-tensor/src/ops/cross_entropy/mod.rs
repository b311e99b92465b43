//! The cross-entropy of logits with target indices.

mod cpu;

use super::check_divisor;
use super::chunks::own;
use crate::parallel::{each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// The target of a row that counts neither in the loss nor in the gradient.
pub const IGNORE: u32 = u32::MAX;

/// Σ −ln softmax(logits)[target] / divisor over the rows whose target is not [`IGNORE`], and the
/// gradient with respect to the logits (…, V), which is written over them if nothing else holds them.
///
/// A row's loss is ln Σⱼ e^xⱼ − x_t, so its gradient is (softmax(x)ⱼ − δⱼₜ)/divisor. The divisor is
/// the caller's: the number of targets of the whole batch makes the sum over its micro-batches their
/// mean. With a divisor of 0 both are 0. Losses are summed in double precision, row by row.
///
/// # Errors
/// [`Error::Index`] for a target that is neither below V nor [`IGNORE`]; [`Error::Shape`] unless
/// the targets have the shape of the logits without the innermost extent; [`Error::Argument`] for a
/// divisor that is negative or no number; errors of allocation.
pub fn cross_entropy(logits: Tensor, targets: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    const OP: &str = "cross_entropy";
    let width = check(OP, &logits, targets)?;
    check_divisor(OP, divisor)?;
    let mut gradient = own(logits)?;
    if divisor == 0.0 {
        gradient.f32s_mut()?.fill(0.0);
        return Ok((0.0, gradient));
    }
    let (device, targets) = (gradient.device().clone(), targets.u32s()?);
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = gradient.f32s_mut()?.chunks_mut(rows * width);
    let chunks = chunks
        .zip(targets.chunks(rows))
        .zip(losses.chunks_mut(rows));
    each(&device, chunks, |((logits, targets), losses)| {
        cpu::gradient(logits, width, targets, divisor, losses);
    });
    Ok((losses.iter().sum::<f64>() / divisor, gradient))
}

/// The loss of [`cross_entropy`] alone, with the same bits: for evaluation.
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_loss(logits: &Tensor, targets: &Tensor, divisor: f64) -> Result<f64> {
    const OP: &str = "cross_entropy_loss";
    let width = check(OP, logits, targets)?;
    check_divisor(OP, divisor)?;
    if divisor == 0.0 {
        return Ok(0.0);
    }
    let targets = targets.u32s()?;
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.chunks(rows));
    each(
        logits.device(),
        chunks.zip(losses.chunks_mut(rows)),
        |((logits, targets), losses)| {
            cpu::losses(logits, width, targets, losses);
        },
    );
    Ok(losses.iter().sum::<f64>() / divisor)
}

/// How many rows have their largest logit (the first of equals) where the target is; rows whose
/// target is [`IGNORE`] do not count.
///
/// # Errors
/// [`Error::Index`] and [`Error::Shape`] as [`cross_entropy`].
pub fn correct(logits: &Tensor, targets: &Tensor) -> Result<u64> {
    let width = check("correct", logits, targets)?;
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.u32s()?.chunks(rows));
    let mut counts = vec![0; targets.elements().div_ceil(rows)];
    each(
        logits.device(),
        chunks.zip(&mut counts),
        |((logits, targets), count)| {
            *count = cpu::correct(logits, width, targets);
        },
    );
    Ok(counts.iter().sum())
}

/// The number of classes; at least 1, so that rows can be cut (without classes there is no valid
/// target, and nothing to compute).
fn check(op: &'static str, logits: &Tensor, targets: &Tensor) -> Result<usize> {
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
