//! Checks that several operations share.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An error unless both tensors have the same shape.
pub(super) fn check_same_shape(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape() == b.shape() {
        return Ok(());
    }
    let expected = format!("tensors of the shape {}", a.shape());
    Err(Error::shape(op, expected, b.shape()))
}

/// An error unless the copy of a value can be written to: an update that fails changes nothing.
pub(super) fn check_writable(op: &'static str, copy: Option<&Tensor>) -> Result<()> {
    match copy.is_none_or(Tensor::is_unique) {
        true => Ok(()),
        false => Err(Error::Shared { op }),
    }
}

/// An error unless a sum can be divided by `divisor`; 0 stands for a batch without targets.
pub(super) fn check_divisor(op: &'static str, divisor: f64) -> Result<()> {
    if divisor >= 0.0 && divisor.is_finite() {
        return Ok(());
    }
    let message = format!("a divisor of {divisor} makes no mean: use the number of targets");
    Err(Error::Argument { op, message })
}
