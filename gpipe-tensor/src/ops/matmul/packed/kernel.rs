//! Products of packed operands.

use std::arch::asm;
use std::arch::x86_64::__m512;

use pulp::x86::V4;
use pulp::{NullaryFnOnce, Simd, cast};

use crate::instruction_set::has_bf16_vectors;
use crate::ops::matmul::matrix::Begin;
use crate::ops::prefetch::{fetch, fetch_far};

/// Steps between two looks ahead.
const STEPS: usize = 4;
/// How far ahead a packed a is asked for, in floats.
const AHEAD: usize = 192;
/// Floats of a cache line.
const LINE: usize = 16;

/// What a step of the kernel multiplies.
pub(in crate::ops) trait Multiply: Copy + Send + Sync {
    type Simd: Simd;

    /// Inner elements in the place of a float: a step takes as many.
    const INNER: usize;

    fn simd(self) -> Self::Simd;

    /// sum + a·b, for each place of a float.
    fn multiply_add(self, a: Vector<Self>, b: Vector<Self>, sum: Vector<Self>) -> Vector<Self>;
}

type Vector<M> = <<M as Multiply>::Simd as Simd>::f32s;

/// Floats.
impl<S: Simd> Multiply for S {
    type Simd = S;
    const INNER: usize = 1;

    fn simd(self) -> S {
        self
    }

    #[inline(always)]
    fn multiply_add(self, a: S::f32s, b: S::f32s, sum: S::f32s) -> S::f32s {
        self.mul_add_f32s(a, b, sum)
    }
}

/// Pairs of bf16 (AVX512-BF16), at twice the rate of floats on AMD's processors. Numbers below the smallest normal float count as zero.
#[derive(Clone, Copy)]
pub(super) struct Bf16Pairs(V4);

impl Bf16Pairs {
    /// `None` where the processor cannot multiply them.
    pub(super) fn new(simd: V4) -> Option<Self> {
        has_bf16_vectors().then_some(Self(simd))
    }
}

impl Multiply for Bf16Pairs {
    type Simd = V4;
    const INNER: usize = 2;

    fn simd(self) -> V4 {
        self.0
    }

    #[inline(always)]
    fn multiply_add(self, a: Vector<Self>, b: Vector<Self>, sum: Vector<Self>) -> Vector<Self> {
        // SAFETY: the processor has the instruction, as `new` has asked, and with it AVX-512.
        cast(unsafe { add_products_of_pairs(cast(a), cast(b), cast(sum)) })
    }
}

/// Adds the products of both numbers of each pair: by assembly, since the vectors of pulp are compiled without this
/// extension and a function with it would be called for each instruction.
///
/// # Safety
/// The processor has AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_products_of_pairs(a: __m512, b: __m512, mut sum: __m512) -> __m512 {
    // SAFETY: the caller's promise; the instruction reads and writes these registers alone.
    unsafe {
        asm!(
            "vdpbf16ps {sum}, {a}, {b}",
            sum = inout(zmm_reg) sum,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// The packed operands of a product of some rows and columns over some inner elements, and its vectors. A tile of c has
/// `ROWS` rows and two vectors of columns.
pub(super) struct Product<'a, M, const ROWS: usize> {
    /// The instructions.
    pub multiply: M,
    /// Panels of `ROWS` rows.
    pub a: &'a [f32],
    /// Panels of two vectors of columns.
    pub b: &'a [f32],
    /// Steps for which a panel has room.
    pub depth: usize,
    /// Steps that there are.
    pub steps: usize,
    /// Rows and columns of c.
    pub size: (usize, usize),
    /// What c is before.
    pub begin: Begin<'a>,
}

impl<M: Multiply, const ROWS: usize> Product<'_, M, ROWS> {
    /// Computes c = begin + a·b in rows that begin every `stride` floats.
    pub(super) fn add(self, (c, stride): (&mut [f32], usize)) {
        self.multiply.simd().vectorize(Add {
            product: self,
            c,
            stride,
        });
    }
}

struct Add<'a, M, const ROWS: usize> {
    product: Product<'a, M, ROWS>,
    c: &'a mut [f32],
    stride: usize,
}

impl<M: Multiply, const ROWS: usize> NullaryFnOnce for Add<'_, M, ROWS> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { product, c, stride } = self;
        let Product {
            multiply,
            depth,
            steps,
            ..
        } = product;
        let (rows, columns) = product.size;
        let width = 2 * M::Simd::F32_LANES;
        let all_columns = (0..columns).step_by(width);
        for (b, column) in product.b.chunks_exact(depth * width).zip(all_columns) {
            let mut next = b.as_ptr_range().end;
            let b = &b[..steps * width];
            let begin = product.begin.from(column);
            let all_rows = (0..rows).step_by(ROWS);
            for (a, row) in product.a.chunks_exact(depth * ROWS).zip(all_rows) {
                let a = &a[..steps * ROWS];
                let c = &mut c[row * stride + column..];
                let size = (ROWS.min(rows - row), width.min(columns - column));
                if size == (ROWS, width) {
                    whole_tile::<M, ROWS>(multiply, (a, b), next, begin, c, stride);
                    next = next.wrapping_add(steps / STEPS * width);
                } else if size.0 <= FEW {
                    let sums = sums::<M, ROWS, FEW>(multiply, a, b);
                    part_of_tile(&sums, size, begin, c, stride);
                } else {
                    let sums = sums::<M, ROWS, ROWS>(multiply, a, b);
                    part_of_tile(&sums, size, begin, c, stride);
                }
            }
        }
    }
}

/// Rows that have a loop of their own where a tile has no more: 256 and 1,024 rows leave as many to the last tile, of 12 as
/// of 6 rows, and the loop for 12 takes three times as long.
const FEW: usize = 4;

/// The sums of some rows of a tile.
pub(in crate::ops) type Sums<S, const ROWS: usize> = [[<S as Simd>::f32s; 2]; ROWS];

/// Computes a tile that lies inside of c, and meanwhile asks for what follows the place `next` of the later panels of columns:
/// each tile for a share of them.
#[inline(always)]
fn whole_tile<M: Multiply, const ROWS: usize>(
    multiply: M,
    (a, b): (&[f32], &[f32]),
    mut next: *const f32,
    begin: Begin<'_>,
    c: &mut [f32],
    stride: usize,
) {
    let simd = multiply.simd();
    let width = 2 * M::Simd::F32_LANES;
    let c = &mut c[..(ROWS - 1) * stride + width];
    for row in 0..ROWS {
        fetch(c, row * stride);
        fetch(c, row * stride + width - 1);
    }
    let sums = sums_beside::<M, ROWS, ROWS>(multiply, a, b, || {
        fetch_far(next);
        if width > LINE {
            fetch_far(next.wrapping_add(LINE));
        }
        next = next.wrapping_add(width);
    });
    for (row, sums) in sums.iter().enumerate() {
        let out = M::Simd::as_mut_simd_f32s(&mut c[row * stride..][..width]).0;
        match begin {
            Begin::Zero => out.copy_from_slice(sums),
            Begin::Sum => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = simd.add_f32s(*out, *sum);
                }
            }
            Begin::Row(row) => {
                let row = M::Simd::as_simd_f32s(&row[..width]).0;
                for ((out, row), sum) in out.iter_mut().zip(row).zip(sums) {
                    *out = simd.add_f32s(*row, *sum);
                }
            }
        }
    }
}

/// Stores a tile of which some rows and columns alone lie in c.
#[inline(always)]
fn part_of_tile<V: bytemuck::NoUninit>(
    sums: &[[V; 2]],
    (rows, columns): (usize, usize),
    begin: Begin<'_>,
    c: &mut [f32],
    stride: usize,
) {
    for (row, sums) in sums[..rows].iter().enumerate() {
        let sums: &[f32] = bytemuck::cast_slice(sums);
        let out = &mut c[row * stride..][..columns];
        begin.row(out);
        if let Begin::Zero = begin {
            out.copy_from_slice(&sums[..columns]);
        } else {
            for (out, sum) in out.iter_mut().zip(sums) {
                *out += sum;
            }
        }
    }
}

/// Multiplies the first `SOME` of a panel of rows by a panel of columns.
#[inline(always)]
pub(in crate::ops) fn sums<M: Multiply, const ROWS: usize, const SOME: usize>(
    multiply: M,
    a: &[f32],
    b: &[f32],
) -> Sums<M::Simd, SOME> {
    sums_beside::<M, ROWS, SOME>(multiply, a, b, || ())
}

/// As [`sums`], with something else to do for each of its runs of [`STEPS`] steps.
#[inline(always)]
fn sums_beside<M: Multiply, const ROWS: usize, const SOME: usize>(
    multiply: M,
    a: &[f32],
    b: &[f32],
    mut beside: impl FnMut(),
) -> Sums<M::Simd, SOME> {
    let mut sums = [[multiply.simd().splat_f32s(0.0); 2]; SOME];
    let (a, a_rest) = a.as_chunks::<ROWS>().0.as_chunks::<STEPS>();
    let b = M::Simd::as_simd_f32s(b).0.as_chunks::<2>().0;
    let (b, b_rest) = b.as_chunks::<STEPS>();
    for (a, b) in a.iter().zip(b) {
        beside();
        for line in (0..STEPS * ROWS).step_by(LINE) {
            fetch(a.as_flattened(), AHEAD + line);
        }
        for (a, b) in a.iter().zip(b) {
            step(multiply, &mut sums, a, b);
        }
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        step(multiply, &mut sums, a, b);
    }
    sums
}

/// Adds the products of one step.
#[inline(always)]
fn step<M: Multiply, const ROWS: usize, const SOME: usize>(
    multiply: M,
    sums: &mut Sums<M::Simd, SOME>,
    a: &[f32; ROWS],
    b: &[Vector<M>; 2],
) {
    for (sums, a) in sums.iter_mut().zip(a) {
        let a = multiply.simd().splat_f32s(*a);
        sums[0] = multiply.multiply_add(a, b[0], sums[0]);
        sums[1] = multiply.multiply_add(a, b[1], sums[1]);
    }
}
