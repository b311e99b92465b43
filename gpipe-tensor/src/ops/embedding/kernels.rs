//! The CUDA kernels of the embedding: entry points, parameters and grids.

use super::segments::Bounds;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, THREADS, WARP, entries};

entries! {
    embedding<T>(ids: InU32, table: In, y: Out, n: U64, width: U64);
    embedding_grad<T>(
        list: InU32, dy: In, table: BothF32, sums: OutF32, positions: U64, segments: U64,
        several: U64, width: U64,
    );
    embedding_grad_sums(
        list: InU32, sums: InF32, table: BothF32, positions: U64, segments: U64, several: U64,
        width: U64,
    );
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

/// Operands of [`backward`].
pub(crate) struct Backward {
    /// What [`segments`](super::segments::segments) made of the indices.
    pub list: Pointer,
    pub dy: Pointer,
    /// The table's gradient.
    pub table: Pointer,
    /// Room for a row in single precision for each sum.
    pub sums: Pointer,
}

/// Adds the rows of `dy` to the rows of the table's gradient in two launches: of each segment, and of the segments of
/// one index. How many blocks there are depends on shapes alone.
pub(crate) fn backward(stored: DType, at: Backward, bounds: Bounds, width: usize) -> [Launch; 2] {
    let Backward {
        list,
        dy,
        table,
        sums,
    } = at;
    let Bounds {
        positions,
        segments,
        words,
        ..
    } = bounds;
    let [of_positions, of_segments, of_words] = [positions, segments, words].map(|n| n as u64);
    let columns = width as u64;
    let rows = embedding_grad::call(
        stored,
        list,
        dy,
        table,
        sums,
        of_positions,
        of_segments,
        of_words,
        columns,
    );
    let joined = embedding_grad_sums::call(
        DType::F32,
        list,
        sums,
        table,
        of_positions,
        of_segments,
        of_words,
        columns,
    );
    let lanes = WARP as usize;
    // The sums are read, and rows of the table read and written, no more than one for each word.
    let bytes = 4 * (bounds.sums + 2 * words) * width + 4 * bounds.numbers();
    [
        rows.a_warp_each(segments * width.div_ceil(lanes * (16 / stored.bytes()))),
        joined
            .blocks_with(words * width.div_ceil(lanes), 2 * THREADS as usize)
            .with_bytes(bytes),
    ]
}
