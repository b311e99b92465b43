//! Products of packed operands.

use pulp::{NullaryFnOnce, Simd};

use crate::ops::matmul::matrix::Begin;
use crate::ops::matmul::squares::fetch;

/// Steps between two looks ahead.
const STEPS: usize = 4;
/// How far ahead a packed a is asked for, in floats.
const AHEAD: usize = 192;
/// Floats of a cache line.
const LINE: usize = 16;

/// The packed operands of a product of some rows and columns over some inner elements, and its vectors. A tile of c has
/// `ROWS` rows and two vectors of columns.
pub(super) struct Product<'a, S, const ROWS: usize> {
    /// The instructions.
    pub simd: S,
    /// Panels of `ROWS` rows.
    pub a: &'a [f32],
    /// Panels of two vectors of columns.
    pub b: &'a [f32],
    /// Inner elements for which a panel has room.
    pub depth: usize,
    /// Inner elements that there are.
    pub steps: usize,
    /// Rows and columns of c.
    pub size: (usize, usize),
    /// What c is before.
    pub begin: Begin<'a>,
}

impl<S: Simd, const ROWS: usize> Product<'_, S, ROWS> {
    /// Computes c = begin + a·b in rows that begin every `stride` floats.
    pub(super) fn add(self, (c, stride): (&mut [f32], usize)) {
        self.simd.vectorize(Add {
            product: self,
            c,
            stride,
        });
    }
}

struct Add<'a, S, const ROWS: usize> {
    product: Product<'a, S, ROWS>,
    c: &'a mut [f32],
    stride: usize,
}

impl<S: Simd, const ROWS: usize> NullaryFnOnce for Add<'_, S, ROWS> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { product, c, stride } = self;
        let Product {
            simd, depth, steps, ..
        } = product;
        let (rows, columns) = product.size;
        let width = 2 * S::F32_LANES;
        let all_columns = (0..columns).step_by(width);
        for (b, column) in product.b.chunks_exact(depth * width).zip(all_columns) {
            let b = &b[..steps * width];
            let begin = product.begin.from(column);
            let all_rows = (0..rows).step_by(ROWS);
            for (a, row) in product.a.chunks_exact(depth * ROWS).zip(all_rows) {
                let a = &a[..steps * ROWS];
                let c = &mut c[row * stride + column..];
                let size = (ROWS.min(rows - row), width.min(columns - column));
                if size == (ROWS, width) {
                    whole_tile::<S, ROWS>(simd, a, b, begin, c, stride);
                } else if size.0 <= FEW {
                    let sums = sums::<S, ROWS, FEW>(simd, a, b);
                    part_of_tile(&sums, size, begin, c, stride);
                } else {
                    let sums = sums::<S, ROWS, ROWS>(simd, a, b);
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

/// Computes a tile that lies inside of c.
#[inline(always)]
fn whole_tile<S: Simd, const ROWS: usize>(
    simd: S,
    a: &[f32],
    b: &[f32],
    begin: Begin<'_>,
    c: &mut [f32],
    stride: usize,
) {
    let width = 2 * S::F32_LANES;
    let c = &mut c[..(ROWS - 1) * stride + width];
    for row in 0..ROWS {
        fetch(c, row * stride);
        fetch(c, row * stride + width - 1);
    }
    let sums = sums::<S, ROWS, ROWS>(simd, a, b);
    for (row, sums) in sums.iter().enumerate() {
        let out = S::as_mut_simd_f32s(&mut c[row * stride..][..width]).0;
        match begin {
            Begin::Zero => out.copy_from_slice(sums),
            Begin::Sum => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = simd.add_f32s(*out, *sum);
                }
            }
            Begin::Row(row) => {
                let row = S::as_simd_f32s(&row[..width]).0;
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
pub(in crate::ops) fn sums<S: Simd, const ROWS: usize, const SOME: usize>(
    simd: S,
    a: &[f32],
    b: &[f32],
) -> Sums<S, SOME> {
    let mut sums = [[simd.splat_f32s(0.0); 2]; SOME];
    let (a, a_rest) = a.as_chunks::<ROWS>().0.as_chunks::<STEPS>();
    let b = S::as_simd_f32s(b).0.as_chunks::<2>().0;
    let (b, b_rest) = b.as_chunks::<STEPS>();
    for (a, b) in a.iter().zip(b) {
        for line in (0..STEPS * ROWS).step_by(LINE) {
            fetch(a.as_flattened(), AHEAD + line);
        }
        for (a, b) in a.iter().zip(b) {
            step(simd, &mut sums, a, b);
        }
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        step(simd, &mut sums, a, b);
    }
    sums
}

/// Adds the products of one inner element.
#[inline(always)]
fn step<S: Simd, const ROWS: usize, const SOME: usize>(
    simd: S,
    sums: &mut Sums<S, SOME>,
    a: &[f32; ROWS],
    b: &[S::f32s; 2],
) {
    for (sums, a) in sums.iter_mut().zip(a) {
        let a = simd.splat_f32s(*a);
        sums[0] = simd.mul_add_f32s(a, b[0], sums[0]);
        sums[1] = simd.mul_add_f32s(a, b[1], sums[1]);
    }
}
