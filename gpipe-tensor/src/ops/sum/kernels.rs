//! The CUDA kernels of sums and other reductions: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Call, Launch, Pointer, THREADS, WARP, entries};
use crate::cuda::table::Table;

/// Elements that a block reduces to one number.
pub(crate) use crate::cuda::table::CHUNK;

/// Rows that a thread sums up before their sum joins a longer one: `RUN` of the kernels.
pub(crate) const RUN: usize = 32;

/// Rows that a block sums up: a run for each of its warps.
pub(crate) const SPAN: usize = RUN * (THREADS / WARP) as usize;

entries! {
    sum_rows<T> 4(x: In, partials: OutF32, rows: U64, width: U64);
    add_spans(partials: InF32, out: BothF32, spans: U64, width: U64, adds: U32);
    sum<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares_rows<T>(table: InU64, partials: OutF64, rows: U32);
    max_abs<T>(x: In, partials: OutU32, n: U64);
}

/// A block for some columns of each span of rows, which joins its warps' sums of them.
pub(crate) fn over_spans(call: Call, rows: usize, width: usize) -> Launch {
    let pack = 16 / call.form.stored.bytes();
    let blocks = width.div_ceil(WARP as usize * pack) * rows.div_ceil(SPAN);
    call.blocks_with(blocks, THREADS as usize * pack)
}

/// Sums over rows in two launches: each span of [`SPAN`] rows to a row of `partials`, and these to
/// what is in `out`.
pub(crate) fn sum_rows(
    stored: DType,
    x: Pointer,
    partials: Pointer,
    out: Pointer,
    rows: usize,
    width: usize,
) -> [Launch; 2] {
    let sums = sum_rows::call(stored, x, partials, rows as u64, width as u64);
    [
        over_spans(sums, rows, width),
        add_spans(partials, out, rows.div_ceil(SPAN), width, Before::Counts),
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

/// Sums up `spans` rows of partial sums, in two levels.
pub(crate) fn add_spans(
    partials: Pointer,
    out: Pointer,
    spans: usize,
    width: usize,
    before: Before,
) -> Launch {
    // A double for each thread.
    let floats = 2 * THREADS as usize;
    let adds = u32::from(matches!(before, Before::Counts));
    add_spans::call(DType::F32, partials, out, spans as u64, width as u64, adds)
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
