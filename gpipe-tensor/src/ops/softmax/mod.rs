//! The softmax over the innermost extent, of whole rows and of the lower triangle of squares.

mod cpu;

use super::{check_same_shape, chunks};
use crate::parallel::rows_per_chunk;
use crate::{Error, Result, Tensor};
use cpu::Reach;

/// e^x / Σ e^x over each row, computed from x − max x, so that nothing overflows.
///
/// # Errors
/// [`Error::DType`] for indices; errors of allocation.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    forward(x, |_| Reach::Row)
}

/// The gradient with respect to x from the result y and dL/dy.
///
/// Since ∂yᵢ/∂xⱼ = yᵢ(δᵢⱼ − yⱼ), dL/dxⱼ = yⱼ(dL/dyⱼ − Σᵢ yᵢ·dL/dyᵢ).
///
/// # Errors
/// [`Error::Shape`] unless the shapes are the same; errors of allocation.
pub fn softmax_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    backward("softmax_grad", y, dy, |_| Reach::Row)
}

/// The softmax of scores (…, T, T) where row i sees the columns 0..=i only; 0 beyond.
///
/// # Errors
/// [`Error::Shape`] unless the two innermost extents are equal; errors of allocation.
pub fn causal_softmax(scores: &Tensor) -> Result<Tensor> {
    check_square("causal_softmax", scores)?;
    forward(scores, Reach::Triangle)
}

/// The gradient with respect to the scores from the result y and dL/dy: that of [`softmax_grad`] in
/// the triangle, 0 beyond, where nothing was read.
///
/// # Errors
/// [`Error::Shape`] unless the shapes are the same and the two innermost extents equal; errors of
/// allocation.
pub fn causal_softmax_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check_square("causal_softmax_grad", y)?;
    backward("causal_softmax_grad", y, dy, Reach::Triangle)
}

/// `reach` is asked with a chunk's first row.
fn forward(x: &Tensor, reach: fn(usize) -> Reach) -> Result<Tensor> {
    let (width, rows) = cut(x);
    chunks::map(x, rows * width, |index, x, y| {
        cpu::forward(reach(index * rows), width, x, y);
    })
}

fn backward(
    op: &'static str,
    y: &Tensor,
    dy: &Tensor,
    reach: fn(usize) -> Reach,
) -> Result<Tensor> {
    check_same_shape(op, y, dy)?;
    let (width, rows) = cut(y);
    chunks::map_two(y, dy, rows * width, |index, y, dy, dx| {
        cpu::backward(reach(index * rows), width, y, dy, dx);
    })
}

/// The width of a row and the rows of a chunk; rows without elements make no chunks.
fn cut(x: &Tensor) -> (usize, usize) {
    let width = x.shape().last().max(1);
    (width, rows_per_chunk(width))
}

fn check_square(op: &'static str, x: &Tensor) -> Result<()> {
    match x.shape().dims() {
        [.., rows, columns] if rows == columns => Ok(()),
        _ => Err(Error::shape(op, "scores (…, T, T)", x.shape())),
    }
}
