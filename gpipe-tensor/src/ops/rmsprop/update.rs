//! What one step of RMSProp reads and writes.

use crate::tensor::Tensor;

/// One parameter's tensors and numbers for a step of [`rmsprop`](super::rmsprop()). All tensors have the same
/// shape; all but `copy` hold single-precision floats.
#[derive(Debug)]
pub struct RmsPropUpdate<'a> {
    /// The parameter's value, updated in place.
    pub value: &'a mut Tensor,
    /// Receives the new value in its own type, if there is one: the copy that layers compute with, where
    /// `value` is its master in single precision.
    pub copy: Option<&'a mut Tensor>,
    /// The gradient.
    pub grad: &'a Tensor,
    /// The mean square of the gradients, updated in place: zeros before the first step.
    pub square: &'a mut Tensor,
    /// The velocity, updated in place: needed for a momentum, and zeros before the first step.
    pub velocity: Option<&'a mut Tensor>,
    /// Multiplies the gradient first (clipping); 1 leaves it as it is.
    pub grad_scale: f32,
}
