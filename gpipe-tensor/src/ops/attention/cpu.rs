//! One head of one sample: blocks of query rows against the keys up to the block's end, by products of the crate `gemm-f32`
//! or of AMX, where it is not computed on tiles.

use ndarray::{ArrayViewMut2, aview1, s};

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
    /// Elements of a row.
    pub row: usize,
    /// First column of the head's queries, keys and values.
    pub columns: [usize; 3],
    /// Elements of the queries of all heads at one position.
    pub width: usize,
    /// Width of the head in elements.
    pub size: usize,
    /// Number of positions.
    pub len: usize,
    /// Number of positions that a position sees, its own included.
    pub window: usize,
    /// Instruction set of the products.
    pub instructions: InstructionSet,
    /// Those of a head that is computed on tiles.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub tiles: Option<super::tiles::Instructions>,
    /// Dropout of the probabilities: its settings, the random stream and the stream's first element.
    pub dropout: Option<(Mask, Stream, u64)>,
}

/// Scratch floats of [`Head::forward`]: the scores and the result of a block, and the transposed keys.
pub(super) fn forward_scratch(len: usize, size: usize) -> usize {
    BLOCK.min(len) * (len + size) + size * stride(len)
}

/// Scratch floats of [`Head::backward`]: a block's probabilities and their gradients, the gradients of
/// all keys and values, those of the block's queries, and the transposed keys and values.
pub(super) fn backward_scratch(len: usize, size: usize) -> usize {
    BLOCK.min(len) * (2 * len + size) + 2 * len * size + 2 * size * stride(len)
}

/// Floats between rows of the transposed keys: longer by a cache line, lest rows share a set of the cache.
fn stride(len: usize) -> usize {
    const LINE: usize = 16;
    len.next_multiple_of(LINE) + LINE
}

/// Query rows `first .. first + rows` and the keys that they attend to: `start .. start + keys`.
struct Block {
    first: usize,
    rows: usize,
    start: usize,
    keys: usize,
}

impl<'a> Head<'a> {
    fn blocks(self) -> impl Iterator<Item = Block> {
        (0..self.len).step_by(BLOCK).map(move |first| {
            let rows = BLOCK.min(self.len - first);
            let start = (first + 1).saturating_sub(self.window);
            Block {
                first,
                rows,
                start,
                keys: first + rows - start,
            }
        })
    }

    /// The queries (0), keys (1) or values (2) from row `row` on.
    pub(super) fn part(self, part: usize, row: usize) -> Matrix<'a> {
        let start = row * self.row + self.columns[part];
        Matrix::new(&self.qkv[start..], self.row)
    }

    /// The head `later` query heads after this one, of the same keys and values.
    pub(super) fn later(self, later: usize) -> Self {
        let elements = (later * self.len * self.len) as u64;
        let [queries, keys, values] = self.columns;
        Self {
            columns: [queries + later * self.size, keys, values],
            dropout: self
                .dropout
                .map(|(mask, stream, first)| (mask, stream, first + elements)),
            ..self
        }
    }

    /// Rows from `row` on of a tensor without the three parts, such as the result.
    pub(super) fn single<'b>(self, sample: &'b [f32], row: usize) -> Matrix<'b> {
        Matrix::new(&sample[row * self.width + self.columns[0]..], self.width)
    }

    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// The keys (1) or values (2) of all positions, transposed: (size, len). They are copied, once for all blocks,
    /// where the kernel would transpose them for each of several; the tile unit's copies are of its own order.
    fn transposed<'b>(self, part: usize, copy: &'b mut [f32]) -> Matrix<'b>
    where
        'a: 'b,
    {
        let all = self.part(part, 0).transposed();
        if self.len <= BLOCK || self.instructions.uses_amx() {
            return all;
        }
        let stride = stride(self.len);
        all.copy_in_rows_alone(self.len, (&mut *copy, stride));
        Matrix::new(copy, stride)
    }

    /// The scaled scores of a block, including those of keys that a row does not see.
    fn scores(self, block: &Block, keys: Matrix<'_>, scores: &mut [f32]) {
        let gemm = Gemm {
            scale: self.scale(),
            ..Gemm::new(block.rows, block.keys, self.size)
        };
        gemm.run(
            self.instructions,
            self.part(0, block.first),
            keys.columns_from(block.start),
            MatrixMut::new(scores, block.keys),
        );
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
        let (keys, rest) = scratch.split_at_mut(self.size * stride(self.len));
        let (scores, result) = rest.split_at_mut(BLOCK.min(self.len) * self.len);
        let keys = self.transposed(1, keys);
        let mut factors = [0.0; BLOCK];
        for block in self.blocks() {
            let scores = &mut scores[..block.rows * block.keys];
            self.scores(&block, keys, scores);
            let lse = &mut lse[block.first..block.first + block.rows];
            self.softmax(&block, scores, lse, &mut factors);
            let gemm = Gemm::new(block.rows, self.size, block.keys);
            let values = self.part(2, block.start);
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
                reaches[i] = self.hide_unseen(block, i, row);
                largest[i] = max(&row[..reaches[i]]);
            }
            let mut sums = [0.0; BLOCK];
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                let row = &mut row[..reaches[i]];
                sums[i] = exponentials(row, largest[i]);
                if let Some((mask, stream, first)) = self.dropout {
                    let first = first + ((block.first + i) * self.len + block.start) as u64;
                    mask.apply(stream, first, row);
                }
            }
            for (i, (lse, factor)) in lse.iter_mut().zip(factors.iter_mut()).enumerate() {
                *lse = (f64::from(largest[i]) + sums[i].ln()) as f32;
                *factor = (1.0 / sums[i]) as f32;
            }
        });
    }

    /// Writes the gradients of the queries of `lse.len() / len` heads from this one on, which share the keys
    /// and values, and of these: `dq` (T, heads·s), `dk` and `dv` (T, s). Sums over the heads ascend. `next` is the first
    /// head that this thread is likely to take next, with its sample's results and their gradients.
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
        let (key_sums, rest) = scratch.split_at_mut(self.len * self.size);
        let (value_sums, rest) = rest.split_at_mut(key_sums.len());
        let (keys, rest) = rest.split_at_mut(self.size * stride(self.len));
        let (values, rest) = rest.split_at_mut(keys.len());
        let transposed = [self.transposed(1, keys), self.transposed(2, values)];
        key_sums.fill(0.0);
        value_sums.fill(0.0);
        for (later, lse) in lse.chunks_exact(self.len).enumerate() {
            let columns = later * self.size..(later + 1) * self.size;
            let sums = [&mut *key_sums, &mut *value_sums];
            let dq = dq.slice_mut(s![.., columns]);
            self.later(later)
                .backward_of_one([out, lse, d_out], transposed, dq, sums, rest);
        }
        copy_rows(key_sums, 0, &mut dk);
        copy_rows(value_sums, 0, &mut dv);
    }

    /// The gradients of one head: of its queries, and what it adds to those of its keys and values.
    fn backward_of_one(
        self,
        [out, lse, d_out]: [&[f32]; 3],
        [keys_across, values_across]: [Matrix<'_>; 2],
        mut dq: ArrayViewMut2<'_, f32>,
        [dk, dv]: [&mut [f32]; 2],
        scratch: &mut [f32],
    ) {
        let (probabilities, rest) = scratch.split_at_mut(BLOCK.min(self.len) * self.len);
        let (slopes, queries_grad) = rest.split_at_mut(probabilities.len());
        for block in self.blocks() {
            let Block {
                first,
                rows,
                start,
                keys,
            } = block;
            let (p, ds) = (
                &mut probabilities[..rows * keys],
                &mut slopes[..rows * keys],
            );
            self.scores(&block, keys_across, p);
            let d_rows = self.single(d_out, first);
            Gemm::new(rows, keys, self.size).run(
                self.instructions,
                d_rows,
                values_across.columns_from(start),
                MatrixMut::new(ds, keys),
            );
            self.softmax_grad(&block, out, d_out, lse, p, ds);
            let (p, ds) = (Matrix::new(p, keys), Matrix::new(ds, keys));
            let add = Gemm {
                accumulate: true,
                ..Gemm::new(keys, self.size, rows)
            };
            let seen = start * self.size;
            add.run(
                self.instructions,
                p.transposed(),
                d_rows,
                MatrixMut::new(&mut dv[seen..], self.size),
            );
            add.run(
                self.instructions,
                ds.transposed(),
                self.part(0, first),
                MatrixMut::new(&mut dk[seen..], self.size),
            );
            Gemm::new(rows, self.size, keys).run(
                self.instructions,
                ds,
                self.part(1, start),
                MatrixMut::new(queries_grad, self.size),
            );
            copy_rows(&queries_grad[..rows * self.size], first, &mut dq);
        }
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
                let reach = self.hide_unseen(block, i, p);
                let unseen = block.first + i + 1 - block.start;
                let i = block.first + i;
                let columns = i * self.width + self.columns[0];
                let columns = columns..columns + self.size;
                let mean = dot(&out[columns.clone()], &d_out[columns]);
                let p = &mut p[..reach];
                p.iter_mut().for_each(|p| *p = exp(*p - lse[i]));
                match self.dropout {
                    None => {
                        for (p, ds) in p.iter().zip(ds.iter_mut()) {
                            *ds = p * ((*ds - mean) * scale);
                        }
                    }
                    Some((mask, stream, first)) => {
                        let first = first + (i * self.len + block.start) as u64;
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
                ds[unseen..].fill(0.0);
            }
        });
    }

    /// Masks the scores of the keys that row i of a block does not see, and returns the number of keys to
    /// process, rounded up to whole vectors: masked scores below that number are −∞, those from it on 0.
    #[inline(always)]
    fn hide_unseen(&self, block: &Block, i: usize, scores: &mut [f32]) -> usize {
        let end = block.first + i + 1 - block.start;
        let reach = end.next_multiple_of(LANES).min(scores.len());
        // The first row's window begins with the block.
        let before = (block.first + i + 1)
            .saturating_sub(self.window)
            .saturating_sub(block.start);
        scores[..before].fill(f32::NEG_INFINITY);
        scores[end..reach].fill(f32::NEG_INFINITY);
        scores[reach..].fill(0.0);
        reach
    }
}

/// Copies rows of a block to the rows `first ..` of a strided matrix.
pub(in crate::ops) fn copy_rows(rows: &[f32], first: usize, out: &mut ArrayViewMut2<'_, f32>) {
    let width = out.ncols();
    for (i, row) in rows.chunks_exact(width).enumerate() {
        out.row_mut(first + i).assign(&aview1(row));
    }
}
