//! Cache lines that are asked for while products are computed, before they are needed.
//!
//! The rows of a head lie apart by the rows of all heads, where the processor's own look ahead does not find them, and a
//! short sample has few products in which to hide the wait: with 128 positions it took a fifth of the time.

use std::ops::Range;

use ndarray::ArrayViewMut2;

use crate::ops::matmul::matrix::Matrix;
use crate::ops::prefetch::fetch_at;

/// Floats of a cache line.
const LINE: usize = 16;
/// The most sets of rows.
const MOST: usize = 6;

/// Some rows, `stride` floats apart.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    first: *const f32,
    stride: usize,
    count: usize,
}

impl Rows {
    /// Rows of a matrix.
    pub(super) fn of(matrix: Matrix<'_>, rows: Range<usize>) -> Self {
        let (first, stride) = matrix.place_of_row(rows.start);
        Self {
            first,
            stride,
            count: rows.len(),
        }
    }

    /// Rows of a result.
    pub(super) fn of_result(result: &ArrayViewMut2<'_, f32>, rows: Range<usize>) -> Self {
        let stride = result.strides()[0].unsigned_abs();
        Self {
            first: result.as_ptr().wrapping_add(rows.start * stride),
            stride,
            count: rows.len(),
        }
    }
}

/// Sets of rows of `size` floats, of which some lines are asked for at a time.
pub(super) struct Ahead {
    sets: [Rows; MOST],
    size: usize,
    /// Lines at a time.
    lines: usize,
    /// Sets that were asked for.
    done: usize,
    /// Rows of the next set that were asked for, and floats of the next row.
    row: usize,
    column: usize,
}

impl Ahead {
    /// Nothing.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self::new([], 1, 1)
    }

    /// These rows in this many steps.
    #[inline(always)]
    pub(super) fn new<const N: usize>(rows: [Option<Rows>; N], size: usize, steps: usize) -> Self {
        const { assert!(N <= MOST) };
        let empty = Rows {
            first: std::ptr::null(),
            stride: 0,
            count: 0,
        };
        let mut sets = [empty; MOST];
        for (set, rows) in sets.iter_mut().zip(rows.into_iter().flatten()) {
            *set = rows;
        }
        let count: usize = sets.iter().map(|rows| rows.count).sum();
        Self {
            sets,
            size,
            lines: (count * size.div_ceil(LINE)).div_ceil(steps),
            done: 0,
            row: 0,
            column: 0,
        }
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub(super) fn ask(&mut self) {
        for _ in 0..self.lines {
            let Some(rows) = self.sets.get(self.done) else {
                return;
            };
            if self.row == rows.count {
                (self.done, self.row) = (self.done + 1, 0);
                continue;
            }
            let place = self.row * rows.stride + self.column;
            fetch_at(rows.first.wrapping_add(place));
            self.column += LINE;
            if self.column >= self.size {
                (self.row, self.column) = (self.row + 1, 0);
            }
        }
    }
}
