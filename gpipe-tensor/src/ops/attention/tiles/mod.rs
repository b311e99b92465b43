//! Attention by tiles of scores that stay in registers, by AVX2 or AVX-512: queries lie in the lanes of vectors.
//!
//! For a block of queries, as many as two vectors have lanes, scores are computed transposed: Sᵀ = K·Qᵀ, some keys at a
//! time, and so are the results and the gradients of the queries (Oᵀ = Vᵀ·Pᵀ, dQᵀ = Kᵀ·dSᵀ). The maximum and the sum over
//! the keys of a query are then those of rows of vectors, and what one product writes is what the next one reads: keys,
//! values, queries and gradients of results are copied to panels, scores never. The sums dK = dSᵀ·Q and dV = Pᵀ·dO take
//! scores as they lie, too.
//!
//! Beside products by `gemm-f32` of 64 queries with all keys, which copy each operand anew, forward and backward pass take
//! 0.75 of the time with AVX-512 on a Zen 4 and 0.67 with AVX2 (128 positions, heads of 64 elements), 0.86 and 0.77 with
//! 1,024 positions.
//!
//! The order of all sums depends on positions alone, so bits depend neither on threads nor on other samples.

mod ahead;
mod backward;
mod forward;
mod kernel;

use std::ops::Range;

use ndarray::ArrayViewMut2;
use pulp::x86::V3;

use crate::instruction_set::InstructionSet;
use crate::ops::dropout::Mask;
use crate::ops::matmul::matrix::Matrix;
use crate::ops::matmul::packed::pack::pack;
use crate::philox::Stream;

pub(in crate::ops) use crate::ops::matmul::packed::Instructions;
pub(in crate::ops) use backward::{Backward, QueryHead, scratch as backward_scratch};
pub(in crate::ops) use forward::{Forward, scratch as forward_scratch};

/// The most queries of a block: two vectors of AVX-512.
const MOST_QUERIES: usize = 32;
/// The most rows of a tile.
const MOST_ROWS: usize = 12;
/// Keys that are multiplied in one go, so that their scores stay in the first-level cache.
const DEPTH: usize = 192;

/// The instructions for this many queries, if attention is computed here: not where there is AMX, nor where all queries
/// are one block, half of whose scores lie above the diagonal.
pub(in crate::ops) fn instructions(
    allowed: InstructionSet,
    queries: usize,
) -> Option<Instructions> {
    match allowed.uses_amx() || queries <= MOST_QUERIES {
        true => None,
        false => Instructions::of(allowed),
    }
}

/// Which keys a query sees.
pub(in crate::ops) trait Sees: Copy {
    /// All keys that one of the queries sees lie in this range.
    fn keys(self, queries: Range<usize>) -> Range<usize>;

    /// Whether each of the queries sees all of the keys, of which some may lie behind the last one.
    fn all(self, queries: Range<usize>, keys: Range<usize>) -> bool;

    /// Makes the scores of a key with queries from `first` on −∞ where a query does not see it. Queries and keys may
    /// lie behind the last one.
    fn hide<const QUERIES: usize>(self, key: usize, first: usize, scores: &mut [f32; QUERIES]);
}

/// Keys and values of a head: S rows of s elements each.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Keys<'a> {
    pub keys: Matrix<'a>,
    pub values: Matrix<'a>,
    /// S
    pub len: usize,
    /// s
    pub size: usize,
}

impl Keys<'_> {
    /// 1/√s, by which scores are multiplied.
    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }
}

/// Dropout of the probabilities of a head: settings, the random stream, and its element for the first query and key.
pub(in crate::ops) type Dropout = (Mask, Stream, u64);

/// Takes `n` floats off the front of the scratch.
fn take<'a>(rest: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (taken, others) = std::mem::take(rest).split_at_mut(n);
    *rest = others;
    taken
}

/// Elements of a row that lie side by side in a block.
const PIECE: usize = 8;

/// A piece of each of some rows.
type Block<const ROWS: usize> = [[f32; PIECE]; ROWS];

/// Floats as blocks.
fn as_blocks<const ROWS: usize>(floats: &mut [f32]) -> &mut [Block<ROWS>] {
    floats.as_chunks_mut::<PIECE>().0.as_chunks_mut::<ROWS>().0
}

/// Copies all rows of a matrix to blocks: of each `ROWS` rows, one piece after the other. Zeros stand for rows and
/// elements that the last ones lack.
#[inline(always)]
fn copy_to_blocks<const ROWS: usize>(
    matrix: Matrix<'_>,
    (rows, size): (usize, usize),
    out: &mut [Block<ROWS>],
) {
    for (tile, blocks) in out.chunks_exact_mut(size.div_ceil(PIECE)).enumerate() {
        for i in 0..ROWS {
            let row = tile * ROWS + i;
            if row >= rows {
                blocks.iter_mut().for_each(|block| block[i] = [0.0; PIECE]);
                continue;
            }
            let (pieces, rest) = matrix.row(row, size).as_chunks::<PIECE>();
            for (block, piece) in blocks.iter_mut().zip(pieces) {
                block[i] = *piece;
            }
            if let Some(block) = blocks.get_mut(pieces.len()) {
                block[i] = [0.0; PIECE];
                block[i][..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Copies rows of a matrix, whose elements become the rows of vectors: `WIDTH` rows or fewer, then zeros.
fn copy_across<const WIDTH: usize>(
    copying: V3,
    matrix: Matrix<'_>,
    (rows, size): (Range<usize>, usize),
    out: &mut [f32],
) {
    pack::<WIDTH, 1>(copying, matrix, (rows, 0..size), size, out);
}

/// Copies rows of a matrix to panels of `WIDTH` of their elements, with room for `depth` rows.
fn copy_to_panels<const WIDTH: usize>(
    copying: V3,
    matrix: Matrix<'_>,
    (rows, size): (Range<usize>, usize),
    depth: usize,
    out: &mut [f32],
) {
    pack::<WIDTH, 1>(copying, matrix.transposed(), (0..size, rows), depth, out);
}

/// Copies queries, which lie in the lanes of rows of vectors, to rows of `out` from `first` on, multiplied by a factor each.
#[inline(always)]
fn copy_back<const QUERIES: usize>(
    columns: &[[f32; QUERIES]],
    factors: &[f32],
    first: usize,
    out: &mut ArrayViewMut2<'_, f32>,
    room: &mut [f32],
) {
    let size = columns.len();
    let rows = &mut room[..QUERIES * size];
    Matrix::new(columns.as_flattened(), QUERIES)
        .transposed()
        .copy_in_rows_alone(size, (&mut *rows, size));
    for (i, (row, factor)) in rows.chunks_exact(size).zip(factors).enumerate() {
        for (out, x) in row_mut(out, first + i).iter_mut().zip(row) {
            *out = x * factor;
        }
    }
}

/// A row of a result.
fn row_mut<'b>(out: &'b mut ArrayViewMut2<'_, f32>, row: usize) -> &'b mut [f32] {
    let row = out.row_mut(row).into_slice();
    row.expect("the elements of a row lie side by side")
}

/// Calls `apply` with the lane of a query, a key and their factor of dropout.
#[inline(always)]
fn for_each_factor(
    (mask, stream, element): Dropout,
    queries: Range<usize>,
    keys: Range<usize>,
    all_keys: usize,
    mut apply: impl FnMut(usize, usize, f32),
) {
    for (lane, query) in queries.enumerate() {
        let first = element + (query * all_keys + keys.start) as u64;
        mask.factors(
            stream,
            first,
            keys.len(),
            #[inline(always)]
            |run, factors| {
                for (key, factor) in run.zip(factors) {
                    apply(lane, key, *factor);
                }
            },
        );
    }
}
