//! What one step of AdamW reads and writes.

use crate::tensor::Tensor;

/// One parameter's tensors and numbers for a step of [`adamw`](super::adamw()). All tensors have the same
/// shape; all but `copy` hold single-precision floats.
#[derive(Debug)]
pub struct AdamWUpdate<'a> {
    /// The parameter's value, updated in place.
    pub value: &'a mut Tensor,
    /// Receives the new value in its own type, if there is one: the copy that layers compute with, where
    /// `value` is its master in single precision.
    pub copy: Option<&'a mut Tensor>,
    /// The gradient.
    pub grad: &'a Tensor,
    /// The running mean of the gradient, updated in place; zeros before the first step.
    pub first: &'a mut Tensor,
    /// The running mean of the squared gradient, updated in place; zeros before the first step.
    pub second: &'a mut Tensor,
    /// The number of the step, from 1.
    pub step: u64,
    /// Multiplies the gradient first (clipping); 1 leaves it as it is.
    pub grad_scale: f32,
}
