//! Calls of the matrix multiplication kernels.

use std::ops::Range;

use gemm_common::Parallelism;
use kernel::kernel;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
use super::amx;
use super::matrix::{Begin, Gemm, Matrix, MatrixMut, reaches};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::packed;
use crate::instruction_set::InstructionSet;
use crate::ops::scratch::Scratch;
use crate::parallel::{for_each, for_each_on, rows_per_chunk, threads_for};
use crate::{Device, Result};

mod kernel;
#[cfg(test)]
mod tests;

impl Gemm {
    /// Computes on the calling thread alone with at most these instructions: for use inside a loop that
    /// is spread over threads.
    pub(crate) fn run(
        self,
        instructions: InstructionSet,
        a: Matrix<'_>,
        b: Matrix<'_>,
        c: MatrixMut<'_>,
    ) {
        self.check(a, b, &c);
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        if amx::takes(self, instructions) {
            return amx::run_alone(self, (a, b), c);
        }
        self.alone(instructions, a, b, c);
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
        if amx::takes(self, device.host().instruction_set()) {
            return amx::run(device, self, begin, (a, b), c);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(instructions) = packed::takes(self, device.host()) {
            return packed::run(instructions, device, self, begin, (a, b), c);
        }
        if self.is_faster_transposed(a, b) && !matches!(begin, Begin::Sum) {
            return self.run_transposed(device, begin, (a, b), c);
        }
        let accumulate = !matches!(begin, Begin::Zero);
        if let Begin::Row(_) = begin
            && self.n > 0
        {
            let rows = rows_per_chunk(self.n);
            for_each(device, c.row_blocks(rows), |mut c| {
                (0..c.rows()).for_each(|row| begin.row(c.row(row, self.n)));
            });
        }
        let gemm = Self { accumulate, ..self };
        if self.is_faster_from_rows(b) {
            return gemm.run_from_rows(device, (a, b), c);
        }
        let threads = threads_for(device, self.multiplications());
        gemm.on_threads(threads, device, (a, b), c);
        Ok(())
    }

    /// Whether [`run_from_rows`](Self::run_from_rows) is faster: the right matrix lies in columns, as in the
    /// gradient of a linear layer's input. The kernel's own packing reads one float after the other from cache
    /// lines that share a set where columns are a power of 2 apart, 2.5 ns each, on every thread anew; a copy takes a
    /// fifth of that or less, once. A step of 8 micro-batches became 9 to 13 % faster on two threads, none on one.
    /// Results of at most 64 x 64 are a case of their own to the kernel.
    fn is_faster_from_rows(self, b: Matrix<'_>) -> bool {
        let in_columns = b.row_stride == 1 && b.column_stride > 1;
        in_columns && self.m > 64 && self.n >= 64 && self.k >= 64
    }

    /// c = a·b, or c += a·b, by way of a copy in rows of some columns of b after the other. The products of an
    /// element are added up in the same order, so the bits are the same.
    fn run_from_rows(
        self,
        device: &Device,
        (a, b): (Matrix<'_>, Matrix<'_>),
        c: MatrixMut<'_>,
    ) -> Result<()> {
        /// Columns of a copy, which bound its memory.
        const COLUMNS: usize = 1024;
        /// Floats of a cache line, by which rows of the copy are longer, lest they share a set of the cache.
        const LINE: usize = 16;
        let Self { n, k, .. } = self;
        let stride = n.min(COLUMNS).next_multiple_of(LINE) + LINE;
        let mut copy = Scratch::take(device, k * stride)?;
        for first in (0..n).step_by(COLUMNS) {
            let n = COLUMNS.min(n - first);
            b.columns_from(first)
                .copy_in_rows(device, n, (&mut copy, stride));
            let gemm = Self { n, ..self };
            let threads = threads_for(device, gemm.multiplications());
            let out = MatrixMut::new(&mut c.floats[first..], c.stride);
            gemm.on_threads(threads, device, (a, Matrix::new(&copy, stride)), out);
        }
        Ok(())
    }

    /// Whether [`run_transposed`](Self::run_transposed) is faster: a few rows times the transpose of a matrix in
    /// rows, as in the forward pass of a convolution or a linear layer. The kernel would transpose and pack all
    /// of that matrix, several times the work of the product itself where its rows are a power of 2 apart.
    fn is_faster_transposed(self, a: Matrix<'_>, b: Matrix<'_>) -> bool {
        let rows_by_rows = a.column_stride == 1 && b.row_stride == 1 && b.column_stride > 1;
        rows_by_rows && (2..=128).contains(&self.m) && self.n >= 64 && self.k >= 512
    }

    /// As [`run_on`](Self::run_on), by way of cᵀ = bᵀ·aᵀ. The products of an element are added up in the same order,
    /// so the bits are the same.
    fn run_transposed(
        self,
        device: &Device,
        begin: Begin<'_>,
        (a, b): (Matrix<'_>, Matrix<'_>),
        mut c: MatrixMut<'_>,
    ) -> Result<()> {
        const BLOCK: usize = 16;
        let Self { m, n, .. } = self;
        let mut transposed = Scratch::take(device, m * n)?;
        if let Begin::Row(row) = begin {
            let rows = transposed.chunks_exact_mut(m).zip(row);
            rows.for_each(|(out, begin)| out.fill(*begin));
        }
        let gemm = Self {
            m: n,
            n: m,
            accumulate: !matches!(begin, Begin::Zero),
            ..self
        };
        let threads = threads_for(device, self.multiplications());
        let operands = (b.transposed(), a.transposed());
        gemm.on_threads(
            threads,
            device,
            operands,
            MatrixMut::new(&mut transposed, m),
        );
        for_each(device, c.row_blocks(BLOCK).enumerate(), |(block, mut c)| {
            let first = block * BLOCK;
            let rows = c.rows();
            for column in (0..n).step_by(BLOCK) {
                let columns = BLOCK.min(n - column);
                for row in 0..rows {
                    let from = transposed[column * m + first + row..].iter().step_by(m);
                    let to = &mut c.row(row, n)[column..][..columns];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        });
        Ok(())
    }

    /// Computes on this many threads.
    fn on_threads(
        self,
        threads: usize,
        device: &Device,
        (a, b): (Matrix<'_>, Matrix<'_>),
        c: MatrixMut<'_>,
    ) {
        self.check(a, b, &c);
        let instructions = device.host().instruction_set();
        let place = Place(c.floats.as_mut_ptr());
        for_each_on(threads, device, self.pieces(threads), |(rows, columns)| {
            // SAFETY: as the check says, all elements lie inside of their slices, which are borrowed
            // for the whole call, c exclusively. Pieces have no element of c in common, since neither
            // these nor the rows of c overlap.
            unsafe { self.piece(instructions, rows, columns, (a, b), &place, c.stride) };
        });
    }

    /// Cuts the longer side of the result into pieces for this many threads, large enough that the kernel
    /// adds up the products of an element in the same order as in one piece.
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

    pub(super) fn alone(
        self,
        instructions: InstructionSet,
        a: Matrix<'_>,
        b: Matrix<'_>,
        c: MatrixMut<'_>,
    ) {
        self.check(a, b, &c);
        let place = Place(c.floats.as_mut_ptr());
        // SAFETY: as the check says, all elements lie inside of their slices, which are borrowed for
        // the whole call, c exclusively.
        unsafe {
            self.piece(instructions, 0..self.m, 0..self.n, (a, b), &place, c.stride);
        };
    }

    /// Computes some rows of some columns of c.
    ///
    /// # Safety
    /// The operands and `c`, in rows that begin every `stride` elements, must be as large as the sizes
    /// say, and no other thread may use those elements of `c`.
    unsafe fn piece(
        self,
        instructions: InstructionSet,
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
        // SAFETY: all elements that the kernel accesses lie within their matrices (checked by the
        // caller), and those that it writes are exclusively borrowed and distinct, since the rows of c
        // do not overlap. The kernel reads c only if `accumulate` is set, and floats are always
        // initialised.
        unsafe {
            // cᵀ = bᵀ·aᵀ, whose columns are the rows of c. The crate's names: its first factor, `alpha`, scales what
            // is in c, and each matrix gives the stride between columns before the one between rows.
            kernel(instructions)(
                columns.len(),
                rows.len(),
                self.k,
                c.0.add(rows.start * stride + columns.start),
                signed(stride),
                1,
                self.accumulate,
                b.floats.as_ptr().add(skipped.1),
                signed(b.row_stride),
                signed(b.column_stride),
                a.floats.as_ptr().add(skipped.0),
                signed(a.row_stride),
                signed(a.column_stride),
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
