//! The CUDA kernels of sums and other reductions: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, THREADS, WARP, entries};
use crate::cuda::table::Table;

/// Elements that a block reduces to one number.
pub(crate) use crate::cuda::table::CHUNK;

/// Rows that a thread sums up before their sum joins a longer one: `RUN` of the kernels.
pub(crate) const RUN: usize = 32;

entries! {
    sum_rows<T>(x: In, partials: OutF32, rows: U64, width: U64);
    add_runs(partials: InF32, out: BothF32, runs: U64, width: U64, adds: U32);
    sum<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares_rows<T>(table: InU64, partials: OutF64, rows: U32);
    max_abs<T>(x: In, partials: OutU32, n: U64);
}

/// Sums over rows in two launches: each run of [`RUN`] rows to a row of `partials`, and these to
/// what is in `out`.
pub(crate) fn sum_rows(
    stored: DType,
    x: Pointer,
    partials: Pointer,
    out: Pointer,
    rows: usize,
    width: usize,
) -> [Launch; 2] {
    let runs = rows.div_ceil(RUN);
    let sums = sum_rows::call(stored, x, partials, rows as u64, width as u64);
    [
        sums.over_columns(width, runs),
        add_runs(partials, out, runs, width, Before::Counts),
    ]
}

/// What lies where a sum goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// The sum is added to it.
    Counts,
    /// Anything, which the sum overwrites.
    IsOverwritten,
}

/// Sums up `runs` rows of partial sums, in two levels.
pub(crate) fn add_runs(
    partials: Pointer,
    out: Pointer,
    runs: usize,
    width: usize,
    before: Before,
) -> Launch {
    // A double for each thread.
    let floats = 2 * THREADS as usize;
    let adds = u32::from(matches!(before, Before::Counts));
    add_runs::call(DType::F32, partials, out, runs as u64, width as u64, adds)
        .blocks_with(width.div_ceil(WARP as usize), floats)
}

/// What the elements of each chunk are reduced to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduction {
    /// A sum in double precision.
    Sum,
    /// A sum of squares in double precision.
    Squares,
    /// The bits of the largest magnitude, a `u32`.
    MaxAbs,
}

/// One partial result for each chunk of [`CHUNK`] elements.
pub(crate) fn reduce(
    reduction: Reduction,
    stored: DType,
    x: Pointer,
    partials: Pointer,
    n: usize,
) -> Launch {
    let call = match reduction {
        Reduction::Sum => sum::call,
        Reduction::Squares => sum_of_squares::call,
        Reduction::MaxAbs => max_abs::call,
    };
    call(stored, x, partials, n as u64).a_block_each(n.div_ceil(CHUNK))
}

/// Sums of squares of every row's tensor, one for each chunk. `at` is where the table lies.
pub(crate) fn squares(stored: DType, table: &Table, at: Pointer, partials: Pointer) -> Launch {
    sum_of_squares_rows::call(stored, at, partials, table.rows())
        .a_block_each(table.blocks())
        .with_more_bytes(stored.bytes() * table.elements())
}
