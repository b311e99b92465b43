//! Rectangles of a result, which threads compute beside one another.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use super::tile::BLOCK;
use crate::ops::matmul::matrix::{MatrixMut, reaches};

/// Some rows and columns of a matrix, which nothing else refers to.
pub(super) struct Rectangle<'a> {
    rows: Range<usize>,
    columns: Range<usize>,
    /// The first element of the matrix, not of the rectangle.
    first: *mut f32,
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: the elements of a rectangle are borrowed exclusively, and no two rectangles share one.
unsafe impl Send for Rectangle<'_> {}

impl<'a> Rectangle<'a> {
    /// The first rows and columns of a matrix.
    pub(super) fn whole(c: &'a mut MatrixMut<'_>, rows: usize, columns: usize) -> Self {
        let (rows, columns) = (0..rows, 0..columns);
        let mut all = Self::grid(c, slice::from_ref(&rows), slice::from_ref(&columns));
        all.next().expect("a grid of one row and one column")
    }

    /// Those where these rows and these columns of a matrix meet, each in ascending order and without overlap.
    pub(super) fn grid<'r>(
        c: &'a mut MatrixMut<'_>,
        rows: &'r [Range<usize>],
        columns: &'r [Range<usize>],
    ) -> impl ExactSizeIterator<Item = Self> + use<'a, 'r> {
        let end = |ranges: &[Range<usize>]| {
            let ends = ranges.iter().try_fold(0, |before, range| {
                (before <= range.start && range.start <= range.end).then_some(range.end)
            });
            ends.expect("ranges in order")
        };
        let (last_row, last_column) = (end(rows), end(columns));
        assert!(
            last_column <= c.stride && reaches(c.floats.len(), last_row, c.stride, last_column, 1),
            "rectangles of the matrix"
        );
        let (first, stride) = (c.floats.as_mut_ptr(), c.stride);
        (0..rows.len() * columns.len()).map(move |index| Self {
            rows: rows[index / columns.len()].clone(),
            columns: columns[index % columns.len()].clone(),
            first,
            stride,
            matrix: PhantomData,
        })
    }

    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    pub(super) fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// At most 32 rows and 32 columns of the matrix, within the rectangle.
    #[inline(always)]
    pub(super) fn block(&mut self, rows: &Range<usize>, columns: &Range<usize>) -> Block<'_> {
        let within = |all: &Range<usize>, some: &Range<usize>| {
            all.start <= some.start && some.end <= all.end && some.len() <= BLOCK
        };
        assert!(
            within(&self.rows, rows) && within(&self.columns, columns),
            "a block of the rectangle"
        );
        Block {
            size: (rows.len(), columns.len()),
            first: self
                .first
                .wrapping_add(rows.start * self.stride + columns.start),
            stride: self.stride,
            matrix: PhantomData,
        }
    }
}

/// At most 32 by 32 elements of a matrix, which nothing else refers to.
pub(super) struct Block<'a> {
    size: (usize, usize),
    first: *mut f32,
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

impl Block<'_> {
    /// Rows and columns.
    #[inline(always)]
    pub(super) fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Its first element, and the elements between rows.
    #[inline(always)]
    pub(super) fn place(&mut self) -> (*mut f32, usize) {
        (self.first, self.stride)
    }

    /// Its rows.
    pub(super) fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (rows, columns) = self.size;
        (0..rows).map(move |row| {
            // SAFETY: the row lies within the rectangle, whose elements are borrowed exclusively, and rows do not overlap.
            unsafe { slice::from_raw_parts_mut(self.first.add(row * self.stride), columns) }
        })
    }
}
