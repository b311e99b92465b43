//! Copies of operands in the order in which the kernel reads them.

use std::ops::Range;

use pulp::NullaryFnOnce;
use pulp::x86::V3;

use crate::ops::matmul::matrix::Matrix;
use crate::ops::matmul::squares::{LANES, transposed};
use crate::ops::prefetch::{fetch, fetch_at};

/// How many inner elements ahead a row of an operand that lies in columns is asked for.
const AHEAD: usize = 16;
/// Floats of a cache line.
const LINE: usize = 16;

/// Copies the inner elements `inner` of some rows of an operand (or of the columns of a transposed one) to panels of
/// `WIDTH` rows with room for `depth` steps: in a panel first the first one of each row, then the second ones
/// and so on. Zeros stand for rows that the last panel lacks.
///
/// A step is an inner element (`INNER` = 1), or a pair of them (2), each rounded to bf16, of which the second may be
/// missing at the end.
pub(in crate::ops) fn pack<const WIDTH: usize, const INNER: usize>(
    simd: V3,
    operand: Matrix<'_>,
    (rows, inner): (Range<usize>, Range<usize>),
    depth: usize,
    out: &mut [f32],
) {
    const { assert!(INNER == 1 || INNER == 2) };
    let steps = inner.len().div_ceil(INNER);
    let (row_stride, inner_stride) = operand.strides();
    let floats = &operand.floats()[rows.start * row_stride + inner.start * inner_stride..];
    let whole = match row_stride {
        1 => rows.len() / WIDTH,
        _ => 0,
    };
    if whole > 0 {
        simd.vectorize(InColumns::<WIDTH, INNER> {
            floats,
            inner_stride,
            panels: whole,
            depth,
            inner: inner.len(),
            out,
        });
    }
    let panels = out.chunks_exact_mut(depth * WIDTH);
    for (out, first) in panels.zip((0..rows.len()).step_by(WIDTH)).skip(whole) {
        simd.vectorize(Panel::<WIDTH, INNER> {
            simd,
            floats: &floats[first * row_stride..],
            row_stride,
            inner_stride,
            rows: WIDTH.min(rows.len() - first),
            inner: inner.len(),
            out: &mut out[..steps * WIDTH],
        });
    }
}

/// Whole panels of an operand that lies in columns: a part of a column is read in one go for all of them.
struct InColumns<'a, const WIDTH: usize, const INNER: usize> {
    /// The operand from the first element on.
    floats: &'a [f32],
    inner_stride: usize,
    panels: usize,
    depth: usize,
    inner: usize,
    out: &'a mut [f32],
}

impl<const WIDTH: usize, const INNER: usize> NullaryFnOnce for InColumns<'_, WIDTH, INNER> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let width = self.panels * WIDTH;
        let column = |inner: usize| {
            let column = &self.floats[inner * self.inner_stride..][..width];
            column.as_chunks::<WIDTH>().0
        };
        for (i, first) in (0..self.inner).step_by(INNER).enumerate() {
            for ahead in first + AHEAD..first + AHEAD + INNER {
                for line in (0..width).step_by(LINE) {
                    fetch(self.floats, ahead * self.inner_stride + line);
                }
            }
            let second = (INNER == 2 && first + 1 < self.inner).then(|| column(first + 1));
            for (panel, from) in column(first).iter().enumerate() {
                let out = &mut self.out[(panel * self.depth + i) * WIDTH..][..WIDTH];
                match second {
                    Some(second) => {
                        let pairs = from.iter().zip(&second[panel]);
                        for (out, (low, high)) in out.iter_mut().zip(pairs) {
                            *out = pair(*low, *high);
                        }
                    }
                    None if INNER == 2 => {
                        for (out, low) in out.iter_mut().zip(from) {
                            *out = pair(*low, 0.0);
                        }
                    }
                    None => out.copy_from_slice(from),
                }
            }
        }
    }
}

/// Two floats rounded to the nearest bf16, ties to even, in the bits of one; what is not a number stays so.
#[inline(always)]
fn pair(low: f32, high: f32) -> f32 {
    let nearest = |x: f32| {
        let bits = x.to_bits();
        match x.is_nan() {
            true => bits | 1 << 22,
            false => bits.wrapping_add(0x7FFF + (bits >> 16 & 1)),
        }
    };
    f32::from_bits(nearest(low) >> 16 | nearest(high) & 0xFFFF_0000)
}

/// One panel.
struct Panel<'a, const WIDTH: usize, const INNER: usize> {
    simd: V3,
    /// The operand from the first element on.
    floats: &'a [f32],
    row_stride: usize,
    inner_stride: usize,
    rows: usize,
    inner: usize,
    out: &'a mut [f32],
}

impl<const WIDTH: usize, const INNER: usize> NullaryFnOnce for Panel<'_, WIDTH, INNER> {
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

impl<const WIDTH: usize, const INNER: usize> Panel<'_, WIDTH, INNER> {
    /// Copies all steps from this one on.
    #[inline(always)]
    fn one_by_one(&mut self, first: usize) {
        let out = self.out.as_chunks_mut::<WIDTH>().0.iter_mut();
        for (i, out) in out.enumerate().skip(first) {
            let column = |inner: usize| {
                let from = self.floats[inner * self.inner_stride..].iter();
                from.step_by(self.row_stride)
            };
            let first = column(i * INNER);
            let out = out[..self.rows].iter_mut().zip(first);
            if INNER == 1 {
                out.for_each(|(out, from)| *out = *from);
            } else if i * INNER + 1 < self.inner {
                let second = column(i * INNER + 1);
                out.zip(second)
                    .for_each(|((out, low), high)| *out = pair(*low, *high));
            } else {
                out.for_each(|(out, low)| *out = pair(*low, 0.0));
            }
        }
    }

    /// Copies rows that lie one float after the other by transposing squares of 8 steps; returns how many steps that was.
    #[inline(always)]
    fn in_squares(&mut self) -> usize {
        const { assert!(matches!(WIDTH % LANES, 0 | 4 | 6)) };
        let squares = self.inner / (LANES * INNER);
        let whole = WIDTH / LANES * LANES;
        // The last rows first: where they are fewer than a vector, it reaches into the next column.
        match WIDTH - whole {
            4 => self.rows_in_squares::<4>(whole, squares),
            6 => self.rows_in_squares::<6>(whole, squares),
            _ => (),
        }
        for first in (0..whole).step_by(LANES) {
            self.rows_in_squares::<LANES>(first, squares);
        }
        squares * LANES
    }

    /// Copies this many rows of the panel from the `first` one on, whose places are worked out once for all squares.
    #[inline(always)]
    fn rows_in_squares<const ROWS: usize>(&mut self, first: usize, squares: usize) {
        let ahead = WIDTH * self.row_stride;
        let rows: [&[f32]; ROWS] = std::array::from_fn(|i| {
            &self.floats[(first + i) * self.row_stride..][..squares * LANES * INNER]
        });
        let columns = self.out.chunks_exact_mut(LANES * WIDTH).take(squares);
        for (square, out) in columns.enumerate() {
            let mut columns = [[0.0; LANES]; LANES];
            for (row, from) in columns.iter_mut().zip(rows) {
                let from = &from[square * LANES * INNER..][..LANES * INNER];
                fetch_at(from.as_ptr().wrapping_add(ahead));
                if INNER == 1 {
                    row.copy_from_slice(from);
                } else {
                    let pairs = from.as_chunks::<2>().0;
                    for (out, [low, high]) in row.iter_mut().zip(pairs) {
                        *out = pair(*low, *high);
                    }
                }
            }
            let columns = transposed(self.simd, columns);
            // Whole vectors, though rows may be fewer: what follows overwrites what is too much.
            for (i, column) in columns[..LANES - 1].iter().enumerate() {
                out[i * WIDTH + first..][..LANES].copy_from_slice(column);
            }
            out[(LANES - 1) * WIDTH + first..][..ROWS].copy_from_slice(&columns[LANES - 1][..ROWS]);
        }
    }
}
