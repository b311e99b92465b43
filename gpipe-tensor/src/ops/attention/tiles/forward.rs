//! The forward pass.

use std::ops::Range;

use ndarray::ArrayViewMut2;
use pulp::x86::V3;
use pulp::{NullaryFnOnce, Simd};

use super::ahead::{Ahead, Rows};
use super::kernel::{product, store, sum_over_keys};
use super::{
    Block, Dropout, Instructions, Keys, MOST_QUERIES, MOST_ROWS, PIECE, Sees, as_blocks,
    copy_across, copy_back, copy_to_blocks, copy_to_panels, for_each_factor, row_mut, take,
};
use crate::math::exp;
use crate::ops::matmul::matrix::Matrix;

/// Keys whose exponentials are added up in single precision before their sum joins one in double.
const RUN: usize = 32;

/// One head of one sample.
pub(in crate::ops) struct Forward<'a, V> {
    /// (T, s)
    pub queries: Matrix<'a>,
    pub keys: Keys<'a>,
    pub sees: V,
    pub dropout: Option<Dropout>,
    /// Queries and keys of the head that this thread is likely to take next, if any: for the cache.
    pub next: Option<(Matrix<'a>, Keys<'a>)>,
    /// (T, s)
    pub out: ArrayViewMut2<'a, f32>,
    /// The logarithm of the sum of exponentials of each query; +∞ of one without keys.
    pub lse: &'a mut [f32],
    /// At least [`scratch`] floats.
    pub scratch: &'a mut [f32],
}

/// Floats of scratch for these numbers of keys and elements of a head.
pub(in crate::ops) fn scratch(keys: usize, size: usize) -> usize {
    let (padded_keys, padded_size) = (keys + MOST_ROWS, size + MOST_ROWS);
    let panels = padded_keys * padded_size + padded_size * keys;
    panels + (padded_keys + 3 * padded_size) * MOST_QUERIES
}

impl<V: Sees> Forward<'_, V> {
    /// Writes the result and the logarithms.
    pub(in crate::ops) fn run(self, instructions: Instructions) {
        match instructions {
            Instructions::Avx2(simd) => simd.vectorize(Call::<_, V, 6, 16>(simd, simd, self)),
            Instructions::Avx512(simd) => simd.vectorize(Call::<_, V, 12, 32>(simd, *simd, self)),
        }
    }
}

/// The instructions of products and of copies, and the head.
struct Call<'a, S, V, const ROWS: usize, const QUERIES: usize>(S, V3, Forward<'a, V>);

impl<S: Simd, V: Sees, const ROWS: usize, const QUERIES: usize> NullaryFnOnce
    for Call<'_, S, V, ROWS, QUERIES>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self(simd, copying, mut head) = self;
        let Keys { len, size, .. } = head.keys;
        let (padded, padded_size) = (len.next_multiple_of(ROWS), size.next_multiple_of(PIECE));
        let all = head.lse.len();
        let mut rest = std::mem::take(&mut head.scratch);
        let keys = as_blocks::<ROWS>(take(&mut rest, padded * padded_size));
        let values = take(&mut rest, size.next_multiple_of(ROWS) * len);
        let queries = take(&mut rest, padded_size * QUERIES);
        let scores = take(&mut rest, padded * QUERIES).as_chunks_mut().0;
        let results: &mut [[f32; QUERIES]] = take(&mut rest, size * QUERIES).as_chunks_mut().0;
        copy_to_blocks(head.keys.keys, (len, size), keys);
        copy_to_panels::<ROWS>(copying, head.keys.values, (0..len, size), len, values);
        queries[size * QUERIES..].fill(0.0);
        for first in (0..all).step_by(QUERIES) {
            let block = first..all.min(first + QUERIES);
            let seen = head.sees.keys(block.clone());
            if seen.is_empty() {
                head.lse[block.clone()].fill(f32::INFINITY);
                block.for_each(|row| row_mut(&mut head.out, row).fill(0.0));
                continue;
            }
            copy_across::<QUERIES>(copying, head.queries, (block.clone(), size), queries);
            let queries = queries.as_chunks::<QUERIES>().0.as_chunks::<PIECE>().0;
            let tiles = seen.start / ROWS..seen.end.div_ceil(ROWS);
            let start = tiles.start * ROWS;
            let scores = &mut scores[..tiles.len() * ROWS];
            let mut ahead = head.ahead::<QUERIES>(block.clone(), tiles.len() * queries.len());
            let largest = head.scores(
                simd,
                (keys, queries),
                (tiles, block.clone()),
                scores,
                &mut ahead,
            );
            let (shift, totals) = exponentials(scores, largest, head.keys.scale());
            let seen = start..len.min(start + scores.len());
            if let Some(dropout) = head.dropout {
                let seen = seen.clone();
                for_each_factor(dropout, block.clone(), seen, len, |lane, key, factor| {
                    scores[key][lane] *= factor;
                });
            }
            sum_over_keys::<S, ROWS, QUERIES>(simd, (values, len), seen, scores, results);
            let mut factors = [0.0; QUERIES];
            for (lane, lse) in head.lse[block.clone()].iter_mut().enumerate() {
                let row = block.start + lane;
                (*lse, factors[lane]) = match totals[lane] {
                    0.0 if head.sees.keys(row..row + 1).is_empty() => (f32::INFINITY, 0.0),
                    // Of keys whose scores all overflowed to −∞.
                    0.0 => (f32::NAN, f32::NAN),
                    total => (
                        (f64::from(shift[lane]) + total.ln()) as f32,
                        (1.0 / total) as f32,
                    ),
                };
            }
            copy_back(results, &factors[..block.len()], first, &mut head.out, rest);
        }
    }
}

impl<V: Sees> Forward<'_, V> {
    /// Asks for the rows of this block's result, those of the next block, and the keys of the next head, part by part.
    #[inline(always)]
    fn ahead<const QUERIES: usize>(&self, block: Range<usize>, steps: usize) -> Ahead {
        let Keys { len, size, .. } = self.keys;
        let all = self.lse.len();
        let result = Rows::of_result(&self.out, block.clone());
        let queries = match block.end < all {
            true => Some(Rows::of(
                self.queries,
                block.end..all.min(block.end + QUERIES),
            )),
            false => self
                .next
                .map(|(queries, _)| Rows::of(queries, 0..all.min(QUERIES))),
        };
        let part = block.start * len / all..block.end * len / all;
        let keys = self.next.map(|(_, next)| Rows::of(next.keys, part.clone()));
        let values = self
            .next
            .map(|(_, next)| Rows::of(next.values, part.clone()));
        Ahead::new([Some(result), queries, keys, values], size, steps)
    }

    /// Computes the scores of a block of queries with the keys of some tiles, and gives the largest of each query.
    #[inline(always)]
    fn scores<S: Simd, const ROWS: usize, const QUERIES: usize>(
        &self,
        simd: S,
        (keys, queries): (&[Block<ROWS>], &[[[f32; QUERIES]; PIECE]]),
        (tiles, block): (Range<usize>, Range<usize>),
        scores: &mut [[f32; QUERIES]],
        ahead: &mut Ahead,
    ) -> [f32; QUERIES] {
        let mut largest = [f32::NEG_INFINITY; QUERIES];
        let pieces = queries.len();
        for (tile, scores) in tiles.zip(scores.as_chunks_mut::<ROWS>().0) {
            let keys = &keys[tile * pieces..][..pieces];
            store::<S, ROWS, QUERIES>(product(simd, keys, queries, ahead), scores);
            let first = tile * ROWS;
            if !self.sees.all(block.clone(), first..first + ROWS) {
                for (i, scores) in scores.iter_mut().enumerate() {
                    self.sees.hide(first + i, block.start, scores);
                }
            }
            for scores in scores {
                for lane in 0..QUERIES {
                    let (score, most) = (scores[lane], largest[lane]);
                    largest[lane] = if score > most { score } else { most };
                }
            }
        }
        largest
    }
}

/// Puts the exponentials of scaled scores in their place, each less the query's largest, and gives what was taken off and
/// the sums.
#[inline(always)]
fn exponentials<const QUERIES: usize>(
    scores: &mut [[f32; QUERIES]],
    largest: [f32; QUERIES],
    scale: f32,
) -> ([f32; QUERIES], [f64; QUERIES]) {
    // Of a query without keys, all scores are −∞, and so are all differences.
    let shift = largest.map(|score| match score > f32::NEG_INFINITY {
        true => score * scale,
        false => 0.0,
    });
    let mut totals = [0.0; QUERIES];
    for run in scores.chunks_mut(RUN) {
        let mut sums = [0.0; QUERIES];
        for scores in run {
            for lane in 0..QUERIES {
                // Rounded as the largest was, whose difference is 0 however large it is.
                let e = exp(scores[lane] * scale - shift[lane]);
                scores[lane] = e;
                sums[lane] += e;
            }
        }
        for lane in 0..QUERIES {
            totals[lane] += f64::from(sums[lane]);
        }
    }
    (shift, totals)
}
