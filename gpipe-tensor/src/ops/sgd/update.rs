//! What one step of SGD reads and writes.

use crate::tensor::Tensor;

/// One parameter's tensors and numbers for a step of [`sgd`](super::sgd()). All tensors have the same shape;
/// all but `copy` hold single-precision floats.
#[derive(Debug)]
pub struct SgdUpdate<'a> {
    /// The parameter's value, updated in place.
    pub value: &'a mut Tensor,
    /// Receives the new value in its own type, if there is one: the copy that layers compute with, where
    /// `value` is its master in single precision.
    pub copy: Option<&'a mut Tensor>,
    /// The gradient.
    pub grad: &'a Tensor,
    /// The velocity, updated in place: needed for a momentum, and zeros before the first step.
    pub velocity: Option<&'a mut Tensor>,
    /// Multiplies the gradient first (clipping); 1 leaves it as it is.
    pub grad_scale: f32,
}

impl<'a> SgdUpdate<'a> {
    /// A plain step: no copy, no velocity, the gradient as it is.
    pub fn new(value: &'a mut Tensor, grad: &'a Tensor) -> Self {
        Self {
            value,
            copy: None,
            grad,
            velocity: None,
            grad_scale: 1.0,
        }
    }
}
