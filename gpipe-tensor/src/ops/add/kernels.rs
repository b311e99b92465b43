//! The CUDA kernels of sums: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    add<T>(a: In, b: In, out: Out, n: U64, period: U64);
    accumulate<T>(sum: BothF32, x: In, n: U64);
    repeat<T>(row: In, out: Out, n: U64, period: U64);
}

/// out = a + b over `n` elements, where b has `period` of them and is repeated; `out` may be `a`.
pub(crate) fn add(
    stored: DType,
    a: Pointer,
    b: Pointer,
    out: Pointer,
    n: usize,
    period: usize,
) -> Launch {
    add::call(stored, a, b, out, n as u64, period as u64).over_packs(n)
}

/// Adds `n` elements of any type to as many sums in single precision.
#[cfg(test)]
pub(crate) fn accumulate(stored: DType, sum: Pointer, x: Pointer, n: usize) -> Launch {
    accumulate::call(stored, sum, x, n as u64).over_packs(n)
}

/// Fills `n` elements with a row of `period`, again and again.
pub(crate) fn repeat(stored: DType, row: Pointer, out: Pointer, n: usize, period: usize) -> Launch {
    repeat::call(stored, row, out, n as u64, period as u64).over_packs(n)
}
