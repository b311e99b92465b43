//! The CUDA kernels of sums and other reductions: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Call, Launch, Pointer, THREADS, WARP, entries};
use crate::cuda::table::Table;

/// Elements that a block reduces to one number.
pub(crate) use crate::cuda::table::CHUNK;

/// The most rows that a thread sums up before their sum joins a longer one: `RUN` of the kernels.
pub(crate) const RUN: usize = 32;

/// Blocks that keep a large device busy.
const BUSY: usize = 1024;

/// How a sum over rows is cut up: by shape alone, as the order of its terms depends on it.
#[derive(Clone, Copy)]
pub(crate) struct Spans {
    rows: usize,
    /// Blocks side by side, which cover the columns.
    across: usize,
    /// Rows that a warp sums up.
    run: usize,
}

impl Spans {
    /// Of `rows` rows of `width` elements of a type: runs of [`RUN`] rows, or shorter ones where there would be few blocks.
    pub fn new(stored: DType, rows: usize, width: usize) -> Self {
        let of_run = |run| Self {
            rows,
            across: width.div_ceil(WARP as usize * pack(stored)),
            run,
        };
        let runs = [RUN, RUN / 2, RUN / 4].map(of_run);
        let busy = runs.into_iter().find(|spans| spans.blocks() >= BUSY);
        busy.unwrap_or(of_run(RUN / 8))
    }

    /// Spans of rows, each of which a block sums up for some columns: a run for each of its warps.
    pub fn count(self) -> usize {
        self.rows.div_ceil(self.run * (THREADS / WARP) as usize)
    }

    /// Rows that a warp sums up.
    pub fn run(self) -> u64 {
        self.run as u64
    }

    fn blocks(self) -> usize {
        self.across * self.count()
    }
}

/// Elements of 16 bytes.
fn pack(stored: DType) -> usize {
    16 / stored.bytes()
}

entries! {
    sum_rows<T> 4(x: In, partials: OutF32, rows: U64, width: U64, run: U64);
    add_spans(partials: InF32, out: BothF32, spans: U64, width: U64, adds: U32);
    sum<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares<T>(x: In, partials: OutF64, n: U64);
    sum_of_squares_rows<T>(table: InU64, partials: OutF64, rows: U32);
    max_abs<T>(x: In, partials: OutU32, n: U64);
}

/// A block for some columns of each span of rows, which joins its warps' sums of them.
pub(crate) fn over_spans(call: Call, spans: Spans) -> Launch {
    let floats = THREADS as usize * pack(call.form.stored);
    call.blocks_with(spans.blocks(), floats)
}

/// Sums over rows in two launches: each span to a row of `partials`, and these to what is in `out`.
pub(crate) fn sum_rows(
    stored: DType,
    x: Pointer,
    partials: Pointer,
    out: Pointer,
    rows: usize,
    width: usize,
) -> [Launch; 2] {
    let spans = Spans::new(stored, rows, width);
    let (all, run) = (rows as u64, spans.run());
    let sums = sum_rows::call(stored, x, partials, all, width as u64, run);
    [
        over_spans(sums, spans),
        add_spans(partials, out, spans.count(), width, Before::Counts),
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

/// Columns of a block that joins spans: `JOINED_COLUMNS` of the kernel.
const JOINED_COLUMNS: usize = 8;

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
        .blocks_with(width.div_ceil(JOINED_COLUMNS), floats)
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
