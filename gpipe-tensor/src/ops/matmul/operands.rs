//! Parts of operands, for the kernels of this crate.

use super::matrix::{Begin, Matrix, MatrixMut};

impl<'a> Matrix<'a> {
    /// Elements between rows, and between columns.
    pub(super) fn strides(self) -> (usize, usize) {
        (self.row_stride, self.column_stride)
    }

    /// The elements, from the first on.
    pub(super) fn floats(self) -> &'a [f32] {
        self.floats
    }
}

impl MatrixMut<'_> {
    /// The elements from a row and a column on, and how many there are between rows.
    pub(super) fn from(&mut self, row: usize, column: usize) -> (&mut [f32], usize) {
        (&mut self.floats[row * self.stride + column..], self.stride)
    }
}

impl Begin<'_> {
    /// This for the first of several products that are added up, and what is there for the others.
    pub(super) fn at(self, first: bool) -> Self {
        if first { self } else { Self::Sum }
    }

    /// From this column on.
    #[inline(always)]
    pub(super) fn from(self, column: usize) -> Self {
        match self {
            Self::Row(row) => Self::Row(&row[column..]),
            other => other,
        }
    }
}
