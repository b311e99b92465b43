//! The CUDA kernels of the softmax: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    softmax<T>(x: In, y: Out, rows: U64, width: U64, causal: U32);
    softmax_grad<T>(y: In, dy: In, dx: Out, rows: U64, width: U64, causal: U32);
}

/// The softmax of each row, or of the lower triangle of squares of rows.
pub(crate) fn forward(
    stored: DType,
    x: Pointer,
    y: Pointer,
    rows: usize,
    width: usize,
    causal: bool,
) -> Launch {
    softmax::call(stored, x, y, rows as u64, width as u64, causal.into()).a_warp_each(rows)
}

/// The gradient from the result of [`forward`].
pub(crate) fn backward(
    stored: DType,
    y: Pointer,
    dy: Pointer,
    dx: Pointer,
    rows: usize,
    width: usize,
    causal: bool,
) -> Launch {
    softmax_grad::call(stored, y, dy, dx, rows as u64, width as u64, causal.into())
        .a_warp_each(rows)
}
