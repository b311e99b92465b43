//! The CUDA kernels that scale, fill and convert: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::cuda::table::Table;

entries! {
    scale<T>(x: In, y: Out, n: U64, by: F32);
    fill<T>(y: Out, n: U64, value: F32);
    zero_rows(table: InU64, rows: U32);
    narrow<T>(x: InF32, y: Out, n: U64);
    widen<T>(x: In, y: OutF32, n: U64);
}

/// y = x · by; `y` may be `x`.
pub(crate) fn scale(stored: DType, x: Pointer, y: Pointer, n: usize, by: f32) -> Launch {
    scale::call(stored, x, y, n as u64, by).over_packs(n)
}

/// Sets `n` elements.
pub(crate) fn fill(stored: DType, y: Pointer, n: usize, value: f32) -> Launch {
    fill::call(stored, y, n as u64, value).over_packs(n)
}

/// Zeros in the tensors of a table, which are of single precision. `at` is where the table lies.
pub(crate) fn zeros(table: &Table, at: Pointer) -> Launch {
    zero_rows::call(DType::F32, at, table.rows())
        .a_block_each(table.blocks())
        .with_more_bytes(DType::F32.bytes() * table.elements())
}

/// From single precision to the stored type.
pub(crate) fn narrow(stored: DType, x: Pointer, y: Pointer, n: usize) -> Launch {
    narrow::call(stored, x, y, n as u64).over_packs(n)
}

/// From the stored type to single precision.
pub(crate) fn widen(stored: DType, x: Pointer, y: Pointer, n: usize) -> Launch {
    widen::call(stored, x, y, n as u64).over_packs(n)
}
