//! The CUDA kernels of the squared error: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::CHUNK;

entries! {
    squared_error<T>(y: Both, target: In, partials: OutF64, n: U64, slope: F32);
    one_hot_squared_error<T>(
        y: Both, labels: InU32, partials: OutF64, n: U64, width: U64, slope: F32,
    );
}

/// Puts the gradient in the place of y, and gives one partial sum of squares for each chunk.
pub(crate) fn squared_error(
    stored: DType,
    y: Pointer,
    target: Pointer,
    partials: Pointer,
    n: usize,
    slope: f32,
) -> Launch {
    squared_error::call(stored, y, target, partials, n as u64, slope)
        .a_block_each(n.div_ceil(CHUNK))
}

/// The same with the labels of rows of `width` as targets.
pub(crate) fn one_hot(
    stored: DType,
    y: Pointer,
    labels: Pointer,
    partials: Pointer,
    n: usize,
    width: usize,
    slope: f32,
) -> Launch {
    let (count, width) = (n as u64, width as u64);
    one_hot_squared_error::call(stored, y, labels, partials, count, width, slope)
        .a_block_each(n.div_ceil(CHUNK))
}
