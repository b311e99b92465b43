//! The CUDA kernels of the embedding: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    embedding<T>(ids: InU32, table: In, y: Out, n: U64, width: U64);
    embedding_grad<T>(ids: InU32, dy: In, table: BothF32, positions: U64, width: U64);
}

/// The rows of the table that `positions` indices name.
pub(crate) fn forward(
    stored: DType,
    ids: Pointer,
    table: Pointer,
    y: Pointer,
    positions: usize,
    width: usize,
) -> Launch {
    let n = positions * width;
    embedding::call(stored, ids, table, y, n as u64, width as u64).over_elements(n)
}

/// Adds the rows of `dy` to the rows of the table's gradient.
pub(crate) fn backward(
    stored: DType,
    ids: Pointer,
    dy: Pointer,
    table: Pointer,
    positions: usize,
    width: usize,
) -> Launch {
    embedding_grad::call(stored, ids, dy, table, positions as u64, width as u64)
        .a_block_each(positions)
}
