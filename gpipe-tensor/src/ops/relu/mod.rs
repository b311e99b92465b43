//! The rectifier y = max(x, 0).

mod cpu;

use super::{check_same_shape, chunks};
use crate::parallel::CHUNK;
use crate::{Result, Tensor};

/// max(x, 0), element by element.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn relu(x: &Tensor) -> Result<Tensor> {
    chunks::map(x, CHUNK, |_, x, y| cpu::forward(x, y))
}

/// The gradient with respect to x from the *result* y and dL/dy: the slope is 1 where y > 0, else 0
/// (at x = 0 too), so that a layer keeps its output, which the next layer keeps as its input anyway.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of allocation.
pub fn relu_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check_same_shape("relu_grad", y, dy)?;
    chunks::map_two(y, dy, CHUNK, |_, y, dy, dx| cpu::backward(y, dy, dx))
}
