//! The backward pass.

use std::ops::Range;

use ndarray::ArrayViewMut2;
use pulp::x86::V3;
use pulp::{NullaryFnOnce, Simd};

use super::ahead::{Ahead, Rows};
use super::kernel::{add, product, store, sum_over_keys};
use super::{
    Dropout, Instructions, Keys, MOST_QUERIES, MOST_ROWS, PIECE, Sees, as_blocks, copy_across,
    copy_back, copy_to_blocks, copy_to_panels, for_each_factor, row_mut, take,
};
use crate::math::exp;
use crate::ops::matmul::matrix::Matrix;
use crate::ops::rows::dot;

/// One head of queries, its results and their gradients: T rows of s elements each.
pub(in crate::ops) struct QueryHead<'a> {
    pub queries: Matrix<'a>,
    pub out: Matrix<'a>,
    pub d_out: Matrix<'a>,
    /// Of each query.
    pub lse: &'a [f32],
    pub dropout: Option<Dropout>,
    pub dq: ArrayViewMut2<'a, f32>,
}

/// One head of keys and values of one sample, and the heads of queries that share it.
pub(in crate::ops) struct Backward<'a, V, H> {
    pub keys: Keys<'a>,
    pub sees: V,
    /// Heads of queries, in the order in which their gradients are summed.
    pub heads: H,
    /// The keys that this thread is likely to take next, if any, and queries, results and gradients of their first
    /// head: for the cache.
    pub next: Option<(Keys<'a>, [Matrix<'a>; 3])>,
    /// (S, s)
    pub dk: ArrayViewMut2<'a, f32>,
    /// (S, s)
    pub dv: ArrayViewMut2<'a, f32>,
    /// At least [`scratch`] floats.
    pub scratch: &'a mut [f32],
}

/// Floats of scratch for these numbers of keys and elements of a head.
pub(in crate::ops) fn scratch(keys: usize, size: usize) -> usize {
    let padded_keys = keys + MOST_ROWS;
    let (padded_size, columns) = (size + MOST_ROWS, size + MOST_QUERIES);
    let panels = 2 * padded_keys * padded_size + padded_size * keys;
    let sums = 2 * padded_keys * columns;
    panels + sums + (padded_keys + 4 * padded_size + 2 * columns) * MOST_QUERIES
}

impl<'a, V: Sees, H: Iterator<Item = QueryHead<'a>>> Backward<'a, V, H> {
    /// Writes the gradients.
    pub(in crate::ops) fn run(self, instructions: Instructions) {
        match instructions {
            Instructions::Avx2(simd) => simd.vectorize(Call::<_, _, _, 6, 16>(simd, simd, self)),
            Instructions::Avx512(simd) => {
                simd.vectorize(Call::<_, _, _, 12, 32>(simd, *simd, self));
            }
        }
    }
}

/// The instructions of products and of copies, and the heads.
struct Call<'a, S, V, H, const ROWS: usize, const QUERIES: usize>(S, V3, Backward<'a, V, H>);

impl<'a, S, V, H, const ROWS: usize, const QUERIES: usize> NullaryFnOnce
    for Call<'a, S, V, H, ROWS, QUERIES>
where
    S: Simd,
    V: Sees,
    H: Iterator<Item = QueryHead<'a>>,
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self(simd, copying, all) = self;
        let Keys { len, size, .. } = all.keys;
        let (padded, padded_size) = (len.next_multiple_of(ROWS), size.next_multiple_of(PIECE));
        let stride = size.next_multiple_of(QUERIES);
        let mut rest = all.scratch;
        let keys = as_blocks::<ROWS>(take(&mut rest, padded * padded_size));
        let values = as_blocks::<ROWS>(take(&mut rest, padded * padded_size));
        let key_panels = take(&mut rest, size.next_multiple_of(ROWS) * len);
        let key_sums = take(&mut rest, padded * stride);
        let value_sums = take(&mut rest, padded * stride);
        let [queries, d_rows] = [(); 2].map(|()| take(&mut rest, padded_size * QUERIES));
        let [query_panels, d_panels] = [(); 2].map(|()| take(&mut rest, stride * QUERIES));
        let slopes = take(&mut rest, padded * QUERIES)
            .as_chunks_mut::<QUERIES>()
            .0;
        let results = take(&mut rest, size * QUERIES).as_chunks_mut::<QUERIES>().0;
        copy_to_blocks(all.keys.keys, (len, size), keys);
        copy_to_blocks(all.keys.values, (len, size), values);
        copy_to_panels::<ROWS>(copying, all.keys.keys, (0..len, size), len, key_panels);
        queries[size * QUERIES..].fill(0.0);
        d_rows[size * QUERIES..].fill(0.0);
        key_sums.fill(0.0);
        value_sums.fill(0.0);
        for mut head in all.heads {
            for first in (0..head.lse.len()).step_by(QUERIES) {
                let block = first..head.lse.len().min(first + QUERIES);
                let seen = all.sees.keys(block.clone());
                if seen.is_empty() {
                    block.for_each(|row| row_mut(&mut head.dq, row).fill(0.0));
                    continue;
                }
                if block.len() < QUERIES {
                    // What the block before left would join the sums.
                    query_panels.fill(0.0);
                    d_panels.fill(0.0);
                }
                let rows = (block.clone(), size);
                copy_across::<QUERIES>(copying, head.queries, rows.clone(), queries);
                copy_across::<QUERIES>(copying, head.d_out, rows.clone(), d_rows);
                copy_to_panels::<QUERIES>(
                    copying,
                    head.queries,
                    rows.clone(),
                    QUERIES,
                    query_panels,
                );
                copy_to_panels::<QUERIES>(copying, head.d_out, rows, QUERIES, d_panels);
                let tiles = seen.start / ROWS..seen.end.div_ceil(ROWS);
                let start = tiles.start * ROWS;
                let slopes = &mut slopes[..tiles.len() * ROWS];
                let seen = start..len.min(start + slopes.len());
                if let Some(dropout) = head.dropout {
                    // Each factor lies where the slope is written that it is for.
                    slopes.as_flattened_mut().fill(0.0);
                    let seen = seen.clone();
                    for_each_factor(dropout, block.clone(), seen, len, |lane, key, factor| {
                        slopes[key][lane] = factor;
                    });
                }
                let softmax = Softmax::of(&head, block.clone(), &all.keys);
                let queries = queries.as_chunks::<QUERIES>().0.as_chunks::<PIECE>().0;
                let d_rows = d_rows.as_chunks::<QUERIES>().0.as_chunks::<PIECE>().0;
                let pieces = queries.len();
                let mut ahead = head.ahead::<QUERIES>(
                    all.keys,
                    all.next,
                    block.clone(),
                    2 * tiles.len() * pieces,
                );
                let mut p = [[0.0; QUERIES]; ROWS];
                let mut dp = [[0.0; QUERIES]; ROWS];
                for (tile, slopes) in tiles.zip(slopes.as_chunks_mut::<ROWS>().0) {
                    let blocks = tile * pieces..(tile + 1) * pieces;
                    let scores = product(simd, &keys[blocks.clone()], queries, &mut ahead);
                    store::<S, ROWS, QUERIES>(scores, &mut p);
                    let d_probabilities = product(simd, &values[blocks], d_rows, &mut ahead);
                    store::<S, ROWS, QUERIES>(d_probabilities, &mut dp);
                    let key = tile * ROWS;
                    if !all.sees.all(block.clone(), key..key + ROWS) {
                        for (i, scores) in p.iter_mut().enumerate() {
                            all.sees.hide(key + i, first, scores);
                        }
                    }
                    softmax.gradient(&mut p, &dp, slopes);
                    let sums = [
                        (&p, &*d_panels, &mut *value_sums),
                        (slopes, &*query_panels, &mut *key_sums),
                    ];
                    for (scores, panels, sums) in sums {
                        let scores = std::slice::from_ref(scores);
                        let panels = panels.as_chunks::<QUERIES>().0.as_chunks::<QUERIES>().0;
                        for (panel, b) in panels.chunks(1).enumerate() {
                            let tile = product(simd, scores, b, &mut Ahead::none());
                            let out = &mut sums[key * stride + panel * QUERIES..];
                            add::<S, ROWS, QUERIES>(simd, tile, (out, stride));
                        }
                    }
                }
                sum_over_keys::<S, ROWS, QUERIES>(simd, (key_panels, len), seen, slopes, results);
                copy_back(
                    results,
                    &[1.0; QUERIES][..block.len()],
                    first,
                    &mut head.dq,
                    rest,
                );
            }
        }
        for (sums, mut out) in [(key_sums, all.dk), (value_sums, all.dv)] {
            for (row, sums) in sums.chunks_exact(stride).take(len).enumerate() {
                row_mut(&mut out, row).copy_from_slice(&sums[..size]);
            }
        }
    }
}

impl QueryHead<'_> {
    /// Asks for the rows of this block's result, those of the next block, and the keys of the next head, part by part.
    #[inline(always)]
    fn ahead<const QUERIES: usize>(
        &self,
        Keys { len, size, .. }: Keys<'_>,
        next: Option<(Keys<'_>, [Matrix<'_>; 3])>,
        block: Range<usize>,
        steps: usize,
    ) -> Ahead {
        let all = self.lse.len();
        let result = Some(Rows::of_result(&self.dq, block.clone()));
        let own = [self.queries, self.out, self.d_out];
        let rows = all.min(block.end + QUERIES);
        let [queries, out, d_out] = match (block.end < all, next) {
            (true, _) => own.map(|matrix| Some(Rows::of(matrix, block.end..rows))),
            (false, Some((_, next))) => {
                next.map(|matrix| Some(Rows::of(matrix, 0..all.min(QUERIES))))
            }
            (false, None) => [None; 3],
        };
        let part = block.start * len / all..block.end * len / all;
        let keys = next.map(|(keys, _)| Rows::of(keys.keys, part.clone()));
        let values = next.map(|(keys, _)| Rows::of(keys.values, part));
        Ahead::new([result, queries, out, d_out, keys, values], size, steps)
    }
}

/// What the softmax of a block of queries had.
struct Softmax<const QUERIES: usize> {
    scale: f32,
    dropout: bool,
    lse: [f32; QUERIES],
    /// Σⱼ PᵢⱼdPᵢⱼ, which is Σ dOᵢ∘Oᵢ.
    means: [f32; QUERIES],
}

impl<const QUERIES: usize> Softmax<QUERIES> {
    #[inline(always)]
    fn of(head: &QueryHead<'_>, block: Range<usize>, keys: &Keys<'_>) -> Self {
        let mut lse = [0.0; QUERIES];
        let mut means = [0.0; QUERIES];
        for (lane, row) in block.enumerate() {
            lse[lane] = head.lse[row];
            means[lane] = dot(head.out.row(row, keys.size), head.d_out.row(row, keys.size));
        }
        Self {
            scale: keys.scale(),
            dropout: head.dropout.is_some(),
            lse,
            means,
        }
    }

    /// Turns scores `p` into probabilities after dropout, and their gradients `dp` into those of the unscaled scores; with dropout
    /// `slopes` begin as its factors.
    #[inline(always)]
    fn gradient<const ROWS: usize>(
        &self,
        p: &mut [[f32; QUERIES]; ROWS],
        dp: &[[f32; QUERIES]; ROWS],
        slopes: &mut [[f32; QUERIES]; ROWS],
    ) {
        for row in 0..ROWS {
            for lane in 0..QUERIES {
                // Of a query without keys, all scores are −∞ and the sum is +∞: every probability is 0.
                let e = exp(p[row][lane] * self.scale - self.lse[lane]);
                let factor = if self.dropout { slopes[row][lane] } else { 1.0 };
                let slope = factor.mul_add(dp[row][lane], -self.means[lane]);
                slopes[row][lane] = e * (slope * self.scale);
                p[row][lane] = e * factor;
            }
        }
    }
}
