//! Operands, result and sizes of a product of matrices on the host.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::squares;
use crate::Device;
use crate::parallel::for_each;

/// Rows of a strip of [`Matrix::copy_in_rows`]: two cache lines of a column, of which each is read once.
const STRIP: usize = 32;

/// A borrowed matrix of floats with rows `stride` elements apart, or the transpose of one.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(super) floats: &'a [f32],
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows that begin every `stride` elements.
    pub(crate) fn new(floats: &'a [f32], stride: usize) -> Self {
        Self {
            floats,
            row_stride: stride,
            column_stride: 1,
        }
    }

    /// The transpose, without moving anything.
    pub(crate) fn transposed(self) -> Self {
        Self {
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Copies `columns` columns of a matrix that lies in columns to rows that begin every `stride` elements.
    pub(super) fn copy_in_rows(
        self,
        device: &Device,
        columns: usize,
        (out, stride): (&mut [f32], usize),
    ) {
        let strips = out.chunks_mut(STRIP * stride).enumerate();
        for_each(device, strips, |(strip, out)| {
            self.copy_strip(strip, columns, (out, stride));
        });
    }

    /// As [`copy_in_rows`](Self::copy_in_rows), on the calling thread alone.
    pub(crate) fn copy_in_rows_alone(self, columns: usize, (out, stride): (&mut [f32], usize)) {
        for (strip, out) in out.chunks_mut(STRIP * stride).enumerate() {
            self.copy_strip(strip, columns, (out, stride));
        }
    }

    fn copy_strip(self, strip: usize, columns: usize, (out, stride): (&mut [f32], usize)) {
        let from = &self.floats[strip * STRIP..];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let copied =
            squares::copy_in_rows((from, self.column_stride), columns, (&mut *out, stride));
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let copied = 0;
        for column in copied..columns {
            let from = &from[column * self.column_stride..];
            let to = out[column..].iter_mut().step_by(stride);
            to.zip(from).for_each(|(to, from)| *to = *from);
        }
    }

    /// This from a column on.
    pub(crate) fn columns_from(self, column: usize) -> Self {
        Self {
            floats: &self.floats[column * self.column_stride..],
            ..self
        }
    }

    /// The first `columns` elements of a row of a matrix that lies in rows.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn row(self, row: usize, columns: usize) -> &'a [f32] {
        &self.floats[row * self.row_stride..][..columns]
    }

    /// Where a row of a matrix that lies in rows begins, and the elements between rows.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn place_of_row(self, row: usize) -> (*const f32, usize) {
        let place = self.floats.as_ptr().wrapping_add(row * self.row_stride);
        (place, self.row_stride)
    }

    pub(super) fn holds(&self, rows: usize, columns: usize) -> bool {
        reaches(
            self.floats.len(),
            rows,
            self.row_stride,
            columns,
            self.column_stride,
        )
    }
}

/// A matrix to write to, in rows that begin every `stride` elements.
pub(crate) struct MatrixMut<'a> {
    pub(super) floats: &'a mut [f32],
    pub(super) stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Rows that begin every `stride` elements.
    pub(crate) fn new(floats: &'a mut [f32], stride: usize) -> Self {
        Self { floats, stride }
    }

    /// Blocks of `rows` rows; the last one may be shorter.
    pub(super) fn row_blocks(&mut self, rows: usize) -> impl Iterator<Item = MatrixMut<'_>> + Send {
        let stride = self.stride;
        let blocks = self.floats.chunks_mut(rows * stride);
        blocks.map(move |floats| MatrixMut { floats, stride })
    }

    /// Blocks of these rows, which follow one another from the first row on.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(super) fn blocks(
        &mut self,
        rows: impl Iterator<Item = Range<usize>> + Send,
    ) -> impl Iterator<Item = MatrixMut<'_>> + Send {
        let stride = self.stride;
        let mut rest = &mut *self.floats;
        rows.map(move |rows| {
            let taken = std::mem::take(&mut rest);
            // The last row may end before the stride does.
            let (floats, others) = taken.split_at_mut((rows.len() * stride).min(taken.len()));
            rest = others;
            MatrixMut { floats, stride }
        })
    }

    /// Rows that begin in here.
    pub(super) fn rows(&self) -> usize {
        self.floats.len().div_ceil(self.stride.max(1))
    }

    /// The first `columns` elements of a row.
    pub(super) fn row(&mut self, row: usize, columns: usize) -> &mut [f32] {
        &mut self.floats[row * self.stride..][..columns]
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub(crate) enum Begin<'a> {
    /// Nothing.
    Zero,
    /// What is there.
    Sum,
    /// This, in every row.
    Row(&'a [f32]),
}

impl Begin<'_> {
    /// Makes a row what it begins with.
    #[inline(always)]
    pub(crate) fn row(self, out: &mut [f32]) {
        match self {
            Self::Zero => out.fill(0.0),
            Self::Sum => {}
            Self::Row(row) => out.copy_from_slice(&row[..out.len()]),
        }
    }
}

/// What to compute: c = scale · a·b, or c += scale · a·b, where a is (m, k), b is (k, n) and c is
/// (m, n).
#[derive(Clone, Copy)]
pub(crate) struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub scale: f32,
    pub accumulate: bool,
}

impl Gemm {
    /// c = a·b of these sizes.
    pub(crate) fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            m,
            n,
            k,
            scale: 1.0,
            accumulate: false,
        }
    }

    /// Multiplications of the product.
    pub(super) fn multiplications(self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }
}

/// Whether the last element of a matrix lies inside of a slice of `len` elements.
pub(super) fn reaches(
    len: usize,
    rows: usize,
    row_stride: usize,
    columns: usize,
    column_stride: usize,
) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
    match (last(rows, row_stride), last(columns, column_stride)) {
        (Some(row), Some(column)) => row.checked_add(column).is_some_and(|last| last < len),
        _ => false,
    }
}
