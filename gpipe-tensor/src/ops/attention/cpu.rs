//! One head of one sample: blocks of query rows against the keys up to the block's end.

use ndarray::{ArrayViewMut2, ArrayViewMut3, Axis, aview1};

use crate::instruction_set::InstructionSet;
use crate::math::exp;
use crate::ops::dropout::Mask;
use crate::ops::matmul::matrix::{Gemm, Matrix, MatrixMut};
use crate::ops::rows::{LANES, dot, exponentials, max};
use crate::philox::Stream;
use crate::simd::vectorised;

/// Query rows of a block: enough for efficient products, few enough that their scores stay in the
/// second-level cache and little is computed above the diagonal.
const BLOCK: usize = 64;

/// Input and sizes of one head of one sample.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    /// The sample's rows: the queries, then the keys, then the values of all heads.
    pub qkv: &'a [f32],
    /// First column of the head in the queries, the keys and the values.
    pub column: usize,
    /// Elements of the queries (or keys, or values) of all heads at one position.
    pub width: usize,
    /// Width of the head in elements.
    pub size: usize,
    /// Number of positions.
    pub len: usize,
    /// Instruction set of the products.
    pub instructions: InstructionSet,
    /// Dropout of the probabilities: its settings, the random stream and the stream's first element.
    pub dropout: Option<(Mask, Stream, u64)>,
}

/// Scratch floats of [`Head::forward`]: the scores and the result of a block.
pub(super) fn forward_scratch(len: usize, size: usize) -> usize {
    BLOCK.min(len) * (len + size)
}

/// Scratch floats of [`Head::backward`]: a block's probabilities and their gradients, the gradients of
/// all keys and values, and those of the block's queries.
pub(super) fn backward_scratch(len: usize, size: usize) -> usize {
    BLOCK.min(len) * (2 * len + size) + 2 * len * size
}

/// Query rows `first .. first + rows` and the keys that they attend to: `0 .. keys`.
struct Block {
    first: usize,
    rows: usize,
    keys: usize,
}

impl<'a> Head<'a> {
    fn blocks(self) -> impl Iterator<Item = Block> {
        (0..self.len).step_by(BLOCK).map(move |first| {
            let rows = BLOCK.min(self.len - first);
            Block {
                first,
                rows,
                keys: first + rows,
            }
        })
    }

    /// The queries (0), keys (1) or values (2) from row `row` on.
    fn part(self, part: usize, row: usize) -> Matrix<'a> {
        let start = (3 * row + part) * self.width + self.column;
        Matrix::new(&self.qkv[start..], 3 * self.width)
    }

    /// Rows from `row` on of a tensor without the three parts, such as the result.
    fn single<'b>(self, sample: &'b [f32], row: usize) -> Matrix<'b> {
        Matrix::new(&sample[row * self.width + self.column..], self.width)
    }

    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// The scaled scores of a block, including those above the diagonal.
    fn scores(self, block: &Block, scores: &mut [f32]) {
        let gemm = Gemm {
            scale: self.scale(),
            ..Gemm::new(block.rows, block.keys, self.size)
        };
        let keys = self.part(1, 0).transposed();
        gemm.run(
            self.instructions,
            self.part(0, block.first),
            keys,
            MatrixMut::new(scores, block.keys),
        );
    }

    /// Writes the head's columns of the result and the log-sum-exp of each row.
    pub(super) fn forward(
        self,
        mut out: ArrayViewMut2<'_, f32>,
        lse: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (scores, result) = scratch.split_at_mut(BLOCK.min(self.len) * self.len);
        let mut factors = [0.0; BLOCK];
        for block in self.blocks() {
            let scores = &mut scores[..block.rows * block.keys];
            self.scores(&block, scores);
            let lse = &mut lse[block.first..block.keys];
            self.softmax(&block, scores, lse, &mut factors);
            let gemm = Gemm::new(block.rows, self.size, block.keys);
            let values = self.part(2, 0);
            gemm.run(
                self.instructions,
                Matrix::new(scores, block.keys),
                values,
                MatrixMut::new(result, self.size),
            );
            let rows = result
                .chunks_exact(self.size)
                .zip(&factors)
                .take(block.rows);
            for (i, (row, factor)) in rows.enumerate() {
                let mut out = out.row_mut(block.first + i);
                out.zip_mut_with(&aview1(row), |out, x| *out = x * factor);
            }
        }
    }

    /// Turns scores into the unnormalized probabilities that multiply the values.
    fn softmax(self, block: &Block, scores: &mut [f32], lse: &mut [f32], factors: &mut [f32]) {
        // One loop over the rows per dependent operation: rows are independent, so that their
        // latencies overlap.
        vectorised!({
            let keys = block.keys;
            let mut largest = [0.0; BLOCK];
            let mut reaches = [0; BLOCK];
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                reaches[i] = hide_unseen(row, block.first + i);
                largest[i] = max(&row[..reaches[i]]);
            }
            let mut sums = [0.0; BLOCK];
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                let row = &mut row[..reaches[i]];
                sums[i] = exponentials(row, largest[i]);
                if let Some((mask, stream, first)) = self.dropout {
                    let first = first + ((block.first + i) * self.len) as u64;
                    mask.apply(stream, first, row);
                }
            }
            for (i, (lse, factor)) in lse.iter_mut().zip(factors.iter_mut()).enumerate() {
                *lse = (f64::from(largest[i]) + sums[i].ln()) as f32;
                *factor = (1.0 / sums[i]) as f32;
            }
        });
    }

    /// Writes the head's columns of the gradients of queries, keys and values: `dqkv` (T, 3, s).
    pub(super) fn backward(
        self,
        out: &[f32],
        lse: &[f32],
        d_out: &[f32],
        mut dqkv: ArrayViewMut3<'_, f32>,
        scratch: &mut [f32],
    ) {
        let (probabilities, rest) = scratch.split_at_mut(BLOCK.min(self.len) * self.len);
        let (slopes, rest) = rest.split_at_mut(probabilities.len());
        let (dk, rest) = rest.split_at_mut(self.len * self.size);
        let (dv, dq) = rest.split_at_mut(dk.len());
        dk.fill(0.0);
        dv.fill(0.0);
        for block in self.blocks() {
            let Block { first, rows, keys } = block;
            let (p, ds) = (
                &mut probabilities[..rows * keys],
                &mut slopes[..rows * keys],
            );
            self.scores(&block, p);
            let d_rows = self.single(d_out, first);
            let values = self.part(2, 0).transposed();
            Gemm::new(rows, keys, self.size).run(
                self.instructions,
                d_rows,
                values,
                MatrixMut::new(ds, keys),
            );
            self.softmax_grad(&block, out, d_out, lse, p, ds);
            let (p, ds) = (Matrix::new(p, keys), Matrix::new(ds, keys));
            let add = Gemm {
                accumulate: true,
                ..Gemm::new(keys, self.size, rows)
            };
            add.run(
                self.instructions,
                p.transposed(),
                d_rows,
                MatrixMut::new(dv, self.size),
            );
            let queries = self.part(0, first);
            add.run(
                self.instructions,
                ds.transposed(),
                queries,
                MatrixMut::new(dk, self.size),
            );
            Gemm::new(rows, self.size, keys).run(
                self.instructions,
                ds,
                self.part(1, 0),
                MatrixMut::new(dq, self.size),
            );
            copy_rows(
                &dq[..rows * self.size],
                first,
                dqkv.index_axis_mut(Axis(1), 0),
            );
        }
        copy_rows(dk, 0, dqkv.index_axis_mut(Axis(1), 1));
        copy_rows(dv, 0, dqkv.index_axis_mut(Axis(1), 2));
    }

    /// Turns the scores `p` into probabilities, and the gradients `ds` of the probabilities into those
    /// of the unscaled scores. With dropout, `p` ends as the dropped-out probabilities, the factors of
    /// the values.
    fn softmax_grad(
        self,
        block: &Block,
        out: &[f32],
        d_out: &[f32],
        lse: &[f32],
        p: &mut [f32],
        ds: &mut [f32],
    ) {
        let scale = self.scale();
        vectorised!({
            let rows = p
                .chunks_exact_mut(block.keys)
                .zip(ds.chunks_exact_mut(block.keys));
            for (i, (p, ds)) in rows.enumerate() {
                let i = block.first + i;
                let columns = i * self.width + self.column;
                let columns = columns..columns + self.size;
                let mean = dot(&out[columns.clone()], &d_out[columns]);
                let reach = hide_unseen(p, i);
                let p = &mut p[..reach];
                p.iter_mut().for_each(|p| *p = exp(*p - lse[i]));
                match self.dropout {
                    None => {
                        for (p, ds) in p.iter().zip(ds.iter_mut()) {
                            *ds = p * ((*ds - mean) * scale);
                        }
                    }
                    Some((mask, stream, first)) => {
                        let first = first + (i * self.len) as u64;
                        mask.factors(
                            stream,
                            first,
                            p.len(),
                            #[inline(always)]
                            |run, factors| {
                                let pairs = p[run.clone()].iter_mut().zip(&mut ds[run]);
                                for ((p, ds), factor) in pairs.zip(factors) {
                                    *ds = *p * (factor.mul_add(*ds, -mean) * scale);
                                    *p *= factor;
                                }
                            },
                        );
                    }
                }
                ds[i + 1..].fill(0.0);
            }
        });
    }
}

/// Masks the scores of the keys after `i` and returns the number of keys to process, rounded up to whole
/// vectors: masked scores below that number are −∞, those from it on 0.
#[inline(always)]
fn hide_unseen(scores: &mut [f32], i: usize) -> usize {
    let reach = (i + 1).next_multiple_of(LANES).min(scores.len());
    scores[i + 1..reach].fill(f32::NEG_INFINITY);
    scores[reach..].fill(0.0);
    reach
}

/// Copies rows of a block to the rows `first ..` of a strided matrix.
fn copy_rows(rows: &[f32], first: usize, mut out: ArrayViewMut2<'_, f32>) {
    let width = out.ncols();
    for (i, row) in rows.chunks_exact(width).enumerate() {
        out.row_mut(first + i).assign(&aview1(row));
    }
}
