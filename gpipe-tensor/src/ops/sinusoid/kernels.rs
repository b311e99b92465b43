//! The CUDA kernel of the sinusoidal positions: entry point, parameters and grid.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    add_positions<T>(
        y: Out, segments: InU32, rows: U64, len: U64, width: U64, first: U64, scale: F32, ratio: F64,
    );
}

/// Scales `rows` rows of `width` elements, samples of `len` positions each, and adds the positions.
pub(crate) fn positions(
    stored: DType,
    [y, segments]: [Pointer; 2],
    [rows, len, width]: [usize; 3],
    (first, ratio): (u64, f64),
    scale: f32,
) -> Launch {
    add_positions::call(
        stored,
        y,
        segments,
        rows as u64,
        len as u64,
        width as u64,
        first,
        scale,
        ratio,
    )
    .a_warp_each(rows)
}
