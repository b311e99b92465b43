//! The one door to the matrix multiplication kernels.

use gemm::Parallelism;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
use super::amx;
use crate::parallel::{each, rows_per_chunk, threads_for};
use crate::{Device, Result};

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
        self.with(Parallelism::None, a, b, c);
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
        let this = Self { accumulate, ..self };
        let threads = threads_for(device, self.multiplications());
        match device.host().pool() {
            Some(pool) if threads > 1 => {
                pool.install(|| this.with(Parallelism::Rayon(threads), a, b, c));
            }
            _ => this.with(Parallelism::None, a, b, c),
        }
        Ok(())
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

    fn with(self, parallelism: Parallelism, a: Matrix<'_>, b: Matrix<'_>, c: MatrixMut<'_>) {
        let Self { m, n, k, .. } = self;
        self.check(a, b, &c);
        // A stride fits an isize unless it is never used: `holds` has seen its last multiple.
        let stride = |stride: usize| stride as isize;
        // SAFETY: every element that the kernel reads or writes lies inside of its slice, as the
        // assertions above say; the elements of c are distinct since its rows do not overlap; the
        // slices are borrowed for the whole call, c exclusively. The kernel reads c only if
        // `accumulate` says so, and floats are always initialised.
        unsafe {
            // The crate's names: its first factor, `alpha`, scales what is in c, and each matrix
            // gives the stride between columns before the one between rows.
            gemm::gemm(
                m,
                n,
                k,
                c.floats.as_mut_ptr(),
                1,
                stride(c.stride),
                self.accumulate,
                a.floats.as_ptr(),
                stride(a.column_stride),
                stride(a.row_stride),
                b.floats.as_ptr(),
                stride(b.column_stride),
                stride(b.row_stride),
                1.0f32,
                self.scale,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

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
