//! The CUDA kernels of the binary cross-entropy: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::CHUNK;

entries! {
    binary_cross_entropy<T>(y: Both, target: InF32, partials: OutF64, n: U64, factor: F32);
}

/// Puts the gradient in the place of y, and gives one partial sum of losses for each chunk.
pub(crate) fn binary_cross_entropy(
    stored: DType,
    y: Pointer,
    target: Pointer,
    partials: Pointer,
    n: usize,
    factor: f32,
) -> Launch {
    binary_cross_entropy::call(stored, y, target, partials, n as u64, factor)
        .a_block_each(n.div_ceil(CHUNK))
}
