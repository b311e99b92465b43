//! The CUDA kernels of the key-value cache: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

/// Warps of a block, each with room for one head.
const WARPS: usize = 8;

/// Bytes of shared memory that every device gives a block without being asked twice.
const SHARED: usize = 48 * 1024;

entries! {
    cache_store<T>(
        x: In, past: InU32, cache: Out, n: U64, len: U64, columns: U64, column: U64, capacity: U64,
        width: U64, first: U64,
    );
    cached_attention<T>(
        x: In, past: InU32, keys: In, values: In, out: Out, rows: U64, len: U64, columns: U64,
        column: U64, capacity: U64, first: U64, heads: U32, shared_by: U32, size: U32, window: U64,
        scale: F32,
    );
}

/// New positions, and where they lie in a cache.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Samples of the operand.
    pub samples: usize,
    /// New positions of each.
    pub len: usize,
    /// Elements of a position of the operand, and the first that counts.
    pub columns: usize,
    pub column: usize,
    /// Positions that a row of the cache has room for.
    pub capacity: usize,
    /// The row of the first sample.
    pub first: usize,
}

/// The heads of attention.
#[derive(Clone, Copy)]
pub(crate) struct HeadSizes {
    pub heads: usize,
    /// Query heads that share a head of keys and values.
    pub shared_by: usize,
    /// Elements of a head.
    pub size: usize,
    /// The most positions that one sees.
    pub window: usize,
}

/// Stores `width` columns of the new positions.
pub(crate) fn store(
    stored: DType,
    [x, past, cache]: [Pointer; 3],
    place: Place,
    width: usize,
) -> Launch {
    let n = place.samples * place.len * width;
    cache_store::call(
        stored,
        x,
        past,
        cache,
        n as u64,
        place.len as u64,
        place.columns as u64,
        place.column as u64,
        place.capacity as u64,
        width as u64,
        place.first as u64,
    )
    .over_elements(n)
}

/// The results of the new positions; none for heads that do not fit the shared memory.
pub(crate) fn attend(
    stored: DType,
    [x, past, keys, values, out]: [Pointer; 5],
    place: Place,
    heads: HeadSizes,
) -> Option<Launch> {
    if 4 * WARPS * heads.size > SHARED {
        return None;
    }
    let rows = place.samples * place.len * heads.heads;
    let call = cached_attention::call(
        stored,
        x,
        past,
        keys,
        values,
        out,
        rows as u64,
        place.len as u64,
        place.columns as u64,
        place.column as u64,
        place.capacity as u64,
        place.first as u64,
        heads.heads as u32,
        heads.shared_by as u32,
        heads.size as u32,
        heads.window as u64,
        1.0 / (heads.size as f32).sqrt(),
    );
    Some(call.blocks_with(rows.div_ceil(WARPS), WARPS * heads.size))
}
