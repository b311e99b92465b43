//! The one door to the matrix multiplication kernels.

use std::ops::Range;

use gemm::Parallelism;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
use super::amx;
use crate::parallel::{each, each_on, rows_per_chunk, threads_for};
use crate::{Device, Result};

#[cfg(test)]
mod tests;

/// A matrix of floats that somebody else owns, in rows that lie `stride` elements apart, or the
/// transpose of one.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    floats: &'a [f32],
    row_stride: usize,
    column_stride: usize,
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

    /// Elements between rows, and between columns.
    pub(super) fn strides(self) -> (usize, usize) {
        (self.row_stride, self.column_stride)
    }

    /// The elements, from the first on.
    pub(super) fn floats(self) -> &'a [f32] {
        self.floats
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
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
    floats: &'a mut [f32],
    stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Rows that begin every `stride` elements.
    pub(crate) fn new(floats: &'a mut [f32], stride: usize) -> Self {
        Self { floats, stride }
    }

    /// Runs of so many rows; the last one may be shorter.
    pub(super) fn row_blocks(&mut self, rows: usize) -> impl Iterator<Item = MatrixMut<'_>> + Send {
        let stride = self.stride;
        let blocks = self.floats.chunks_mut(rows * stride);
        blocks.map(move |floats| MatrixMut { floats, stride })
    }

    /// Rows that begin in here.
    fn rows(&self) -> usize {
        self.floats.len().div_ceil(self.stride.max(1))
    }

    /// The first `columns` elements of a row.
    pub(super) fn row(&mut self, row: usize, columns: usize) -> &mut [f32] {
        &mut self.floats[row * self.stride..][..columns]
    }

    /// The elements from a row and a column on, and how many there are between rows.
    pub(super) fn from(&mut self, row: usize, column: usize) -> (&mut [f32], usize) {
        (&mut self.floats[row * self.stride + column..], self.stride)
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
    /// This for the first of several products that are added up, and what is there for the others.
    pub(super) fn at(self, first: bool) -> Self {
        if first { self } else { Self::Sum }
    }

    /// From this column on.
    pub(super) fn from(self, column: usize) -> Self {
        match self {
            Self::Row(row) => Self::Row(&row[column..]),
            other => other,
        }
    }

    /// Makes a row what it begins with.
    #[inline(always)]
    pub(super) fn row(self, out: &mut [f32]) {
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

    /// How many there are.
    pub(super) fn multiplications(self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// Computes on the calling thread alone: for use inside a loop that is spread over threads.
    pub(crate) fn run(self, a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
        self.check(a, b, &c);
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        if amx::takes(self) {
            return amx::run_alone(self, (a, b), c);
        }
        self.alone(a, b, c);
    }

    /// c = begin + a·b, computed on as many threads as `device` may use now; their number does not
    /// change the bits.
    ///
    /// # Errors
    /// Errors of allocation.
    pub(crate) fn run_on(
        self,
        device: &Device,
        begin: Begin<'_>,
        a: Matrix<'_>,
        b: Matrix<'_>,
        mut c: MatrixMut<'_>,
    ) -> Result<()> {
        self.check(a, b, &c);
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        if amx::takes(self) {
            return amx::run(device, self, begin, (a, b), c);
        }
        let accumulate = !matches!(begin, Begin::Zero);
        if let Begin::Row(_) = begin
            && self.n > 0
        {
            let rows = rows_per_chunk(self.n);
            each(device, c.row_blocks(rows), |mut c| {
                (0..c.rows()).for_each(|row| begin.row(c.row(row, self.n)));
            });
        }
        let threads = threads_for(device, self.multiplications());
        Self { accumulate, ..self }.on_threads(threads, device, (a, b), c);
        Ok(())
    }

    /// Computes on so many threads.
    fn on_threads(
        self,
        threads: usize,
        device: &Device,
        (a, b): (Matrix<'_>, Matrix<'_>),
        c: MatrixMut<'_>,
    ) {
        self.check(a, b, &c);
        let place = Place(c.floats.as_mut_ptr());
        each_on(threads, device, self.pieces(threads), |(rows, columns)| {
            // SAFETY: as the check says, all elements lie inside of their slices, which are borrowed
            // for the whole call, c exclusively. Pieces have no element of c in common, since neither
            // these nor the rows of c overlap.
            unsafe { self.piece(rows, columns, (a, b), &place, c.stride) };
        });
    }

    /// Cuts the longer side of the result into pieces for so many threads, of so many rows or columns
    /// each that the kernel adds up the products of an element in the same order as in one piece.
    fn pieces(self, threads: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + Send {
        /// Of either side: vectors and small results are cases of their own to the kernel.
        const LEAST: (usize, usize) = (4, 128);
        const STEP: usize = 32;
        let Self { m, n, .. } = self;
        let longer = m.max(n);
        let count = match m.min(n) >= LEAST.0 {
            true => (longer / LEAST.1).clamp(1, threads),
            false => 1,
        };
        let edge = move |i: usize| match i == count {
            true => longer,
            false => longer * i / count / STEP * STEP,
        };
        (0..count).map(move |i| {
            let piece = edge(i)..edge(i + 1);
            match m >= n {
                true => (piece, 0..n),
                false => (0..m, piece),
            }
        })
    }

    /// Panics unless the operands and the result are as large as the sizes say.
    fn check(self, a: Matrix<'_>, b: Matrix<'_>, c: &MatrixMut<'_>) {
        let Self { m, n, k, .. } = self;
        assert!(a.holds(m, k), "the left matrix is shorter than {m} x {k}");
        assert!(b.holds(k, n), "the right matrix is shorter than {k} x {n}");
        assert!(
            n <= c.stride && reaches(c.floats.len(), m, c.stride, n, 1),
            "the result is shorter than {m} x {n}, or its rows overlap"
        );
    }

    fn alone(self, a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
        self.check(a, b, &c);
        let place = Place(c.floats.as_mut_ptr());
        // SAFETY: as the check says, all elements lie inside of their slices, which are borrowed for
        // the whole call, c exclusively.
        unsafe { self.piece(0..self.m, 0..self.n, (a, b), &place, c.stride) };
    }

    /// Computes some rows of some columns of c.
    ///
    /// # Safety
    /// The operands and `c`, in rows that begin every `stride` elements, must be as large as the sizes
    /// say, and no other thread may use those elements of `c`.
    unsafe fn piece(
        self,
        rows: Range<usize>,
        columns: Range<usize>,
        (a, b): (Matrix<'_>, Matrix<'_>),
        c: &Place,
        stride: usize,
    ) {
        if rows.is_empty() || columns.is_empty() {
            return;
        }
        // A stride fits an isize unless it is never used: `holds` has seen its last multiple.
        let signed = |stride: usize| stride as isize;
        let skipped = match self.k {
            0 => (0, 0),
            _ => (rows.start * a.row_stride, columns.start * b.column_stride),
        };
        // SAFETY: every element that the kernel reads or writes lies inside of its matrix, and nobody
        // else uses those that it writes, as the caller has seen to; they are distinct since the rows
        // of c do not overlap. The kernel reads c only if `accumulate` says so, and floats are always
        // initialised.
        unsafe {
            // The crate's names: its first factor, `alpha`, scales what is in c, and each matrix
            // gives the stride between columns before the one between rows.
            gemm::gemm(
                rows.len(),
                columns.len(),
                self.k,
                c.0.add(rows.start * stride + columns.start),
                1,
                signed(stride),
                self.accumulate,
                a.floats.as_ptr().add(skipped.0),
                signed(a.column_stride),
                signed(a.row_stride),
                b.floats.as_ptr().add(skipped.1),
                signed(b.column_stride),
                signed(b.row_stride),
                1.0f32,
                self.scale,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// Where c begins, for all threads that write to it.
struct Place(*mut f32);

// SAFETY: it is only read; what lies there is written in pieces that have no element in common.
unsafe impl Sync for Place {}

/// Whether the last element of a matrix lies inside of a slice of `len` elements.
fn reaches(
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
