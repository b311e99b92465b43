//! One head of one sample: blocks of query rows against the range of keys that any of them sees, by products of the crate
//! `gemm-f32` or of AMX, where it is not computed on tiles.

use std::ops::Range;

use ndarray::{ArrayViewMut2, aview1};

use crate::instruction_set::InstructionSet;
use crate::math::exp;
use crate::ops::attention::cpu::copy_rows;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::ops::attention::tiles;
use crate::ops::dropout::Mask;
use crate::ops::matmul::matrix::{Gemm, Matrix, MatrixMut};
use crate::ops::rows::{dot, exponentials, max};
use crate::philox::Stream;
use crate::simd::vectorised;

/// Query rows of a block, as in causal attention.
const BLOCK: usize = 64;

/// The segment of padding.
pub(super) const PADDING: u32 = 0;

/// Input and sizes of one head of one sample.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    /// The sample's queries, all heads side by side.
    pub queries: &'a [f32],
    /// The sample's keys and values, in each row first the keys of all heads.
    pub keys: &'a [f32],
    /// Segment of each query.
    pub query_segments: &'a [u32],
    /// Segment of each key.
    pub key_segments: &'a [u32],
    /// First column of the head.
    pub column: usize,
    /// Elements of the queries of all heads at one position.
    pub width: usize,
    /// Elements of the head.
    pub size: usize,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Instruction set of the products.
    pub instructions: InstructionSet,
    /// Those of a head that is computed on tiles.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub tiles: Option<tiles::Instructions>,
    /// Dropout of the probabilities: its settings, the random stream and the stream's first element.
    pub dropout: Option<(Mask, Stream, u64)>,
}

/// Scratch floats of [`Head::forward`]: the scores and the result of a block.
pub(super) fn forward_scratch(queries: usize, keys: usize, size: usize) -> usize {
    BLOCK.min(queries) * (keys + size)
}

/// Scratch floats of [`Head::backward`]: a block's probabilities and their gradients, those of the block's
/// queries, and the gradients of all keys and values.
pub(super) fn backward_scratch(queries: usize, keys: usize, size: usize) -> usize {
    BLOCK.min(queries) * (2 * keys + size) + 2 * keys * size
}

/// Query rows, and the keys from the first to the last that one of them sees.
struct Block {
    rows: Range<usize>,
    keys: Range<usize>,
}

impl<'a> Head<'a> {
    /// Whether query `row` sees key `key`.
    #[inline(always)]
    fn sees(self, row: usize, key: usize) -> bool {
        let segment = self.query_segments[row];
        segment != PADDING && self.key_segments[key] == segment && (!self.causal || key <= row)
    }

    fn blocks(self) -> impl Iterator<Item = Block> + 'a {
        let queries = self.query_segments.len();
        (0..queries).step_by(BLOCK).map(move |first| {
            let rows = first..queries.min(first + BLOCK);
            let keys = self.seen_by(rows.clone());
            Block { rows, keys }
        })
    }

    /// The keys from the first to the last that one of these queries sees.
    pub(super) fn seen_by(self, queries: Range<usize>) -> Range<usize> {
        let seen = |key: &usize| queries.clone().any(|query| self.sees(query, *key));
        let all = 0..self.key_segments.len();
        match (all.clone().find(seen), all.rev().find(seen)) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        }
    }

    pub(super) fn query_rows<'b>(self, floats: &'b [f32], row: usize) -> Matrix<'b> {
        Matrix::new(&floats[row * self.width + self.column..], self.width)
    }

    /// The keys (0) or values (1) from row `row` on.
    pub(super) fn key_rows(self, part: usize, row: usize) -> Matrix<'a> {
        let start = row * 2 * self.width + part * self.width + self.column;
        Matrix::new(&self.keys[start..], 2 * self.width)
    }

    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// The scaled scores of a block; −∞ where a row does not see a key.
    fn scores(self, block: &Block, scores: &mut [f32]) {
        let keys = block.keys.len();
        let gemm = Gemm {
            scale: self.scale(),
            ..Gemm::new(block.rows.len(), keys, self.size)
        };
        gemm.run(
            self.instructions,
            self.query_rows(self.queries, block.rows.start),
            self.key_rows(0, block.keys.start).transposed(),
            MatrixMut::new(scores, keys),
        );
        for (row, scores) in block.rows.clone().zip(scores.chunks_exact_mut(keys)) {
            for (key, score) in block.keys.clone().zip(scores) {
                if !self.sees(row, key) {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// The first element of the random stream for a row of a block.
    fn first_element(self, first: u64, row: usize, block: &Block) -> u64 {
        first + (row * self.key_segments.len() + block.keys.start) as u64
    }

    /// Writes the head's columns of the result and the log-sum-exp of each row. `next` is the head that this thread is
    /// likely to take next.
    pub(super) fn forward(
        self,
        next: Option<Self>,
        mut out: ArrayViewMut2<'_, f32>,
        lse: &mut [f32],
        scratch: &mut [f32],
    ) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(instructions) = self.tiles {
            return self.forward_on_tiles(instructions, next, out, lse, scratch);
        }
        let _ = next;
        let (scores, result) = scratch.split_at_mut(BLOCK.min(lse.len()) * self.key_segments.len());
        let mut factors = [0.0; BLOCK];
        for block in self.blocks() {
            let keys = block.keys.len();
            if keys == 0 {
                lse[block.rows.clone()].fill(f32::INFINITY);
                block.rows.for_each(|row| out.row_mut(row).fill(0.0));
                continue;
            }
            let scores = &mut scores[..block.rows.len() * keys];
            self.scores(&block, scores);
            self.softmax(&block, scores, &mut lse[block.rows.clone()], &mut factors);
            Gemm::new(block.rows.len(), self.size, keys).run(
                self.instructions,
                Matrix::new(scores, keys),
                self.key_rows(1, block.keys.start),
                MatrixMut::new(result, self.size),
            );
            let rows = result.chunks_exact(self.size).zip(&factors);
            for (row, (result, factor)) in block.rows.zip(rows) {
                let mut out = out.row_mut(row);
                out.zip_mut_with(&aview1(result), |out, x| *out = x * factor);
            }
        }
    }

    /// Turns scores into the unnormalized probabilities that multiply the values.
    fn softmax(self, block: &Block, scores: &mut [f32], lse: &mut [f32], factors: &mut [f32]) {
        vectorised!({
            let rows = scores.chunks_exact_mut(block.keys.len());
            let results = lse.iter_mut().zip(factors.iter_mut());
            for ((i, row), (lse, factor)) in rows.enumerate().zip(results) {
                let largest = max(row);
                if largest == f32::NEG_INFINITY {
                    let query = block.rows.start + i;
                    let sees = block.keys.clone().any(|key| self.sees(query, key));
                    row.fill(0.0);
                    // Of keys whose scores all overflowed to −∞, or of none.
                    (*lse, *factor) = match sees {
                        true => (f32::NAN, f32::NAN),
                        false => (f32::INFINITY, 0.0),
                    };
                    continue;
                }
                let sum = exponentials(row, largest);
                if let Some((mask, stream, first)) = self.dropout {
                    let first = self.first_element(first, block.rows.start + i, block);
                    mask.apply(stream, first, row);
                }
                *lse = (f64::from(largest) + sum.ln()) as f32;
                *factor = (1.0 / sum) as f32;
            }
        });
    }

    /// Writes the gradients of the head's queries, keys and values; sums over blocks of queries ascend. `next` is the head
    /// that this thread is likely to take next, with its sample's results and their gradients.
    pub(super) fn backward(
        self,
        next: Option<(Self, [&[f32]; 2])>,
        [out, lse, d_out]: [&[f32]; 3],
        [mut dq, mut dk, mut dv]: [ArrayViewMut2<'_, f32>; 3],
        scratch: &mut [f32],
    ) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(instructions) = self.tiles {
            let results = [out, lse, d_out];
            return self.backward_on_tiles(instructions, next, results, [dq, dk, dv], scratch);
        }
        let _ = next;
        let keys = self.key_segments.len();
        let (key_sums, rest) = scratch.split_at_mut(keys * self.size);
        let (value_sums, rest) = rest.split_at_mut(keys * self.size);
        let (probabilities, rest) = rest.split_at_mut(BLOCK.min(lse.len()) * keys);
        let (slopes, queries_grad) = rest.split_at_mut(probabilities.len());
        key_sums.fill(0.0);
        value_sums.fill(0.0);
        for block in self.blocks() {
            let (first, rows, keys) = (block.rows.start, block.rows.len(), block.keys.len());
            if keys == 0 {
                block.rows.for_each(|row| dq.row_mut(row).fill(0.0));
                continue;
            }
            let p = &mut probabilities[..rows * keys];
            let ds = &mut slopes[..rows * keys];
            self.scores(&block, p);
            let d_rows = self.query_rows(d_out, first);
            let values = self.key_rows(1, block.keys.start).transposed();
            Gemm::new(rows, keys, self.size).run(
                self.instructions,
                d_rows,
                values,
                MatrixMut::new(ds, keys),
            );
            self.softmax_grad(&block, [out, d_out], lse, p, ds);
            let (p, ds) = (Matrix::new(p, keys), Matrix::new(ds, keys));
            let add = Gemm {
                accumulate: true,
                ..Gemm::new(keys, self.size, rows)
            };
            let seen = block.keys.start * self.size;
            let sums = MatrixMut::new(&mut value_sums[seen..], self.size);
            add.run(self.instructions, p.transposed(), d_rows, sums);
            let queries = self.query_rows(self.queries, first);
            let sums = MatrixMut::new(&mut key_sums[seen..], self.size);
            add.run(self.instructions, ds.transposed(), queries, sums);
            Gemm::new(rows, self.size, keys).run(
                self.instructions,
                ds,
                self.key_rows(0, block.keys.start),
                MatrixMut::new(queries_grad, self.size),
            );
            copy_rows(&queries_grad[..rows * self.size], first, &mut dq);
        }
        copy_rows(key_sums, 0, &mut dk);
        copy_rows(value_sums, 0, &mut dv);
    }

    /// Turns the scores `p` into probabilities, and the gradients `ds` of the probabilities into those of the
    /// unscaled scores. With dropout, `p` ends as the factors of the values.
    fn softmax_grad(
        self,
        block: &Block,
        [out, d_out]: [&[f32]; 2],
        lse: &[f32],
        p: &mut [f32],
        ds: &mut [f32],
    ) {
        let (scale, keys) = (self.scale(), block.keys.len());
        vectorised!({
            let rows = p.chunks_exact_mut(keys).zip(ds.chunks_exact_mut(keys));
            for (row, (p, ds)) in block.rows.clone().zip(rows) {
                let columns = row * self.width + self.column;
                let columns = columns..columns + self.size;
                let mean = dot(&out[columns.clone()], &d_out[columns]);
                // Of a row without keys, all scores are −∞ and the sum is +∞: every probability is 0.
                p.iter_mut().for_each(|p| *p = exp(*p - lse[row]));
                match self.dropout {
                    None => {
                        for (p, ds) in p.iter().zip(ds.iter_mut()) {
                            *ds = p * ((*ds - mean) * scale);
                        }
                    }
                    Some((mask, stream, first)) => mask.factors(
                        stream,
                        self.first_element(first, row, block),
                        keys,
                        #[inline(always)]
                        |run, factors| {
                            let pairs = p[run.clone()].iter_mut().zip(&mut ds[run]);
                            for ((p, ds), factor) in pairs.zip(factors) {
                                *ds = *p * (factor.mul_add(*ds, -mean) * scale);
                                *p *= factor;
                            }
                        },
                    ),
                }
            }
        });
    }
}
