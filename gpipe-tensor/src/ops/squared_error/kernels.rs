//! The CUDA kernels of the squared error: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::CHUNK;

entries! {
    squared_error<T>(y: Out, target: In, partials: OutF64, n: U64, slope: F32);
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
