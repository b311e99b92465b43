//! Copies of operands in the order in which the kernel reads them.

use std::ops::Range;

use pulp::NullaryFnOnce;
use pulp::x86::V3;

use crate::ops::matmul::matrix::Matrix;
use crate::ops::matmul::squares::{LANES, fetch, transposed};

/// How many inner elements ahead a row of an operand that lies in columns is asked for.
const AHEAD: usize = 16;

/// Copies the inner elements `inner` of up to `WIDTH` rows of an operand (or of the columns of a transposed one): first
/// the first one of each row, then the second ones and so on. Zeros stand for missing rows.
pub(super) fn pack<const WIDTH: usize>(
    simd: V3,
    operand: Matrix<'_>,
    rows: Range<usize>,
    inner: Range<usize>,
    out: &mut [f32],
) {
    let (row_stride, inner_stride) = operand.strides();
    simd.vectorize(Pack::<WIDTH> {
        simd,
        floats: &operand.floats()[rows.start * row_stride + inner.start * inner_stride..],
        row_stride,
        inner_stride,
        rows: rows.len(),
        out: &mut out[..inner.len() * WIDTH],
    });
}

struct Pack<'a, const WIDTH: usize> {
    simd: V3,
    /// The operand from the first element on.
    floats: &'a [f32],
    row_stride: usize,
    inner_stride: usize,
    rows: usize,
    out: &'a mut [f32],
}

impl<const WIDTH: usize> NullaryFnOnce for Pack<'_, WIDTH> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        if self.rows < WIDTH {
            self.out.fill(0.0);
            self.one_by_one(0);
        } else if self.row_stride == 1 {
            let out = self.out.as_chunks_mut::<WIDTH>().0.iter_mut();
            for (i, out) in out.enumerate() {
                fetch(self.floats, (i + AHEAD) * self.inner_stride);
                out.copy_from_slice(&self.floats[i * self.inner_stride..][..WIDTH]);
            }
        } else if self.inner_stride == 1 {
            let transposed = self.in_squares();
            self.one_by_one(transposed);
        } else {
            self.one_by_one(0);
        }
    }
}

impl<const WIDTH: usize> Pack<'_, WIDTH> {
    /// Copies all inner elements from this one on.
    #[inline(always)]
    fn one_by_one(&mut self, first: usize) {
        let out = self.out.as_chunks_mut::<WIDTH>().0.iter_mut();
        for (i, out) in out.enumerate().skip(first) {
            let from = self.floats[i * self.inner_stride..].iter();
            let from = from.step_by(self.row_stride);
            for (out, from) in out[..self.rows].iter_mut().zip(from) {
                *out = *from;
            }
        }
    }

    /// Copies rows that lie one float after the other by transposing squares of 8; returns how many inner elements
    /// that was.
    #[inline(always)]
    fn in_squares(&mut self) -> usize {
        let squares = self.out.chunks_exact_mut(LANES * WIDTH);
        let count = squares.len();
        for (square, out) in squares.enumerate() {
            for first in (0..WIDTH).step_by(LANES) {
                let rows = LANES.min(WIDTH - first);
                let mut columns = [[0.0; LANES]; LANES];
                for (i, row) in columns[..rows].iter_mut().enumerate() {
                    let place = (first + i) * self.row_stride + square * LANES;
                    fetch(self.floats, place + WIDTH * self.row_stride);
                    row.copy_from_slice(&self.floats[place..][..LANES]);
                }
                let columns = transposed(self.simd, columns);
                // Whole vectors, though rows may be fewer: the next column overwrites what is too much.
                for (i, column) in columns[..LANES - 1].iter().enumerate() {
                    out[i * WIDTH + first..][..LANES].copy_from_slice(column);
                }
                out[(LANES - 1) * WIDTH + first..][..rows]
                    .copy_from_slice(&columns[LANES - 1][..rows]);
            }
        }
        count * LANES
    }
}
