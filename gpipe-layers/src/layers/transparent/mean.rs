//! A term of the weighted sum and its gradient.

use gpipe_tensor::ops::Layout;
use gpipe_tensor::{Tensor, Tensors, ops};

use crate::layers::flow::{times, unexpected};
use crate::{Flow, Result};

/// The tensors of a flow.
pub(super) fn taken<const N: usize>(name: &str, flow: Tensors) -> Result<[Tensor; N]> {
    let flow: Vec<Tensor> = flow.into_iter().collect();
    flow.try_into()
        .map_err(|flow: Vec<Tensor>| unexpected(name, format!("{N} tensors"), flow.len()))
}

/// wᵢ·x, as new.
pub(super) fn weighted(x: &Tensor, w: &Tensor, index: usize) -> gpipe_tensor::Result<Tensor> {
    let weight = w.reshape([w.elements(), 1])?.rows(index..index + 1)?;
    let column = x.reshape([x.elements(), 1])?;
    ops::matmul(Layout::Nn, &column, &weight, None)?.reshape(x.shape().clone())
}

/// ⟨x, dy⟩ at the place `index` of `count` numbers, the others zero.
pub(super) fn grown(
    x: &Tensor,
    dy: &Tensor,
    index: usize,
    count: usize,
) -> gpipe_tensor::Result<Tensor> {
    let (row, column) = (
        x.reshape([1, x.elements()])?,
        dy.reshape([dy.elements(), 1])?,
    );
    let product = ops::matmul(Layout::Nn, &row, &column, None)?;
    let mut place = vec![0.0; count];
    place[index] = 1.0;
    let place = Tensor::from_f32(x.device(), [count, 1], place)?.to_dtype(x.dtype())?;
    ops::matmul(Layout::Nn, &place, &product, None)?.reshape([1, count])
}

/// The most bytes of [`grown`], of the product, the place and both; its result with the sum of two is less.
pub(super) fn grown_bytes(w: &Flow) -> u64 {
    times(&[2, w.bytes()]).saturating_add(w.dtype.bytes() as u64)
}
