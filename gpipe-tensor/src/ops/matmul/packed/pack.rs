//! Copies of operands in the order in which the kernel reads them.

use std::ops::Range;

use pulp::NullaryFnOnce;
use pulp::x86::V3;

use crate::ops::matmul::matrix::Matrix;
use crate::ops::matmul::squares::{LANES, fetch, transposed};

/// How many inner elements ahead a row of an operand that lies in columns is asked for.
const AHEAD: usize = 16;
/// Floats of a cache line.
const LINE: usize = 16;

/// Copies the inner elements `inner` of some rows of an operand (or of the columns of a transposed one) to panels of
/// `WIDTH` rows with room for `depth` inner elements: in a panel first the first one of each row, then the second ones
/// and so on. Zeros stand for rows that the last panel lacks.
pub(in crate::ops) fn pack<const WIDTH: usize>(
    simd: V3,
    operand: Matrix<'_>,
    (rows, inner): (Range<usize>, Range<usize>),
    depth: usize,
    out: &mut [f32],
) {
    let (row_stride, inner_stride) = operand.strides();
    let floats = &operand.floats()[rows.start * row_stride + inner.start * inner_stride..];
    let whole = match row_stride {
        1 => rows.len() / WIDTH,
        _ => 0,
    };
    if whole > 0 {
        simd.vectorize(InColumns::<WIDTH> {
            floats,
            inner_stride,
            panels: whole,
            depth,
            steps: inner.len(),
            out,
        });
    }
    let panels = out.chunks_exact_mut(depth * WIDTH);
    for (out, first) in panels.zip((0..rows.len()).step_by(WIDTH)).skip(whole) {
        simd.vectorize(Panel::<WIDTH> {
            simd,
            floats: &floats[first * row_stride..],
            row_stride,
            inner_stride,
            rows: WIDTH.min(rows.len() - first),
            out: &mut out[..inner.len() * WIDTH],
        });
    }
}

/// Whole panels of an operand that lies in columns: a part of a column is read in one go for all of them.
struct InColumns<'a, const WIDTH: usize> {
    /// The operand from the first element on.
    floats: &'a [f32],
    inner_stride: usize,
    panels: usize,
    depth: usize,
    steps: usize,
    out: &'a mut [f32],
}

impl<const WIDTH: usize> NullaryFnOnce for InColumns<'_, WIDTH> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let width = self.panels * WIDTH;
        for i in 0..self.steps {
            for line in (0..width).step_by(LINE) {
                fetch(self.floats, (i + AHEAD) * self.inner_stride + line);
            }
            let column = &self.floats[i * self.inner_stride..][..width];
            for (panel, from) in column.as_chunks::<WIDTH>().0.iter().enumerate() {
                self.out[(panel * self.depth + i) * WIDTH..][..WIDTH].copy_from_slice(from);
            }
        }
    }
}

/// One panel.
struct Panel<'a, const WIDTH: usize> {
    simd: V3,
    /// The operand from the first element on.
    floats: &'a [f32],
    row_stride: usize,
    inner_stride: usize,
    rows: usize,
    out: &'a mut [f32],
}

impl<const WIDTH: usize> NullaryFnOnce for Panel<'_, WIDTH> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        if self.rows < WIDTH {
            self.out.fill(0.0);
            self.one_by_one(0);
        } else if self.inner_stride == 1 {
            let transposed = self.in_squares();
            self.one_by_one(transposed);
        } else {
            self.one_by_one(0);
        }
    }
}

impl<const WIDTH: usize> Panel<'_, WIDTH> {
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
            // The last rows first: where they are fewer than a vector, it reaches into the next column.
            for first in (0..WIDTH).step_by(LANES).rev() {
                let rows = LANES.min(WIDTH - first);
                let mut columns = [[0.0; LANES]; LANES];
                for (i, row) in columns[..rows].iter_mut().enumerate() {
                    let place = (first + i) * self.row_stride + square * LANES;
                    fetch(self.floats, place + WIDTH * self.row_stride);
                    row.copy_from_slice(&self.floats[place..][..LANES]);
                }
                let columns = transposed(self.simd, columns);
                // Whole vectors, though rows may be fewer: what follows overwrites what is too much.
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
