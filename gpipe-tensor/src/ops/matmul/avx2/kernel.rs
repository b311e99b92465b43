//! Products of packed operands.

use pulp::x86::V3;
use pulp::{NullaryFnOnce, Simd, f32x8};

use crate::ops::matmul::matrix::Begin;
use crate::ops::matmul::squares::fetch;

/// Rows of a tile of c. With two vectors each, their sums take 12 of the 16 registers.
pub(super) const TILE_ROWS: usize = 6;
/// Columns of a tile of c: two vectors.
pub(super) const TILE_COLUMNS: usize = 16;
/// Steps between two looks ahead.
const STEPS: usize = 4;
/// How far ahead a packed a is asked for, in floats.
const AHEAD: usize = 192;
/// Floats of a cache line.
const LINE: usize = 16;

/// The packed operands of a product of some rows and columns over some inner elements.
pub(super) struct Product<'a> {
    /// Panels of [`TILE_ROWS`] rows.
    pub a: &'a [f32],
    /// Panels of [`TILE_COLUMNS`] columns.
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

impl Product<'_> {
    /// Computes c = begin + a·b in rows that begin every `stride` floats.
    pub(super) fn add(self, simd: V3, (c, stride): (&mut [f32], usize)) {
        simd.vectorize(Add {
            simd,
            product: self,
            c,
            stride,
        });
    }
}

struct Add<'a> {
    simd: V3,
    product: Product<'a>,
    c: &'a mut [f32],
    stride: usize,
}

impl NullaryFnOnce for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self {
            simd,
            product,
            c,
            stride,
        } = self;
        let Product { depth, steps, .. } = product;
        let (rows, columns) = product.size;
        let all_columns = (0..columns).step_by(TILE_COLUMNS);
        for (b, column) in product
            .b
            .chunks_exact(depth * TILE_COLUMNS)
            .zip(all_columns)
        {
            let b = &b[..steps * TILE_COLUMNS];
            let begin = product.begin.from(column);
            let all_rows = (0..rows).step_by(TILE_ROWS);
            for (a, row) in product.a.chunks_exact(depth * TILE_ROWS).zip(all_rows) {
                let a = &a[..steps * TILE_ROWS];
                let c = &mut c[row * stride + column..];
                let size = (
                    TILE_ROWS.min(rows - row),
                    TILE_COLUMNS.min(columns - column),
                );
                match size {
                    (TILE_ROWS, TILE_COLUMNS) => whole_tile(simd, a, b, begin, c, stride),
                    size => part_of_tile(sums(simd, a, b), size, begin, c, stride),
                }
            }
        }
    }
}

/// The sums of a tile.
type Sums = [[f32x8; 2]; TILE_ROWS];

/// Computes a tile that lies inside of c.
#[inline(always)]
fn whole_tile(simd: V3, a: &[f32], b: &[f32], begin: Begin<'_>, c: &mut [f32], stride: usize) {
    let c = &mut c[..(TILE_ROWS - 1) * stride + TILE_COLUMNS];
    for row in 0..TILE_ROWS {
        fetch(c, row * stride);
        fetch(c, row * stride + TILE_COLUMNS - 1);
    }
    let sums = sums(simd, a, b);
    for (row, sums) in sums.iter().enumerate() {
        let out = V3::as_mut_simd_f32s(&mut c[row * stride..][..TILE_COLUMNS]).0;
        match begin {
            Begin::Zero => out.copy_from_slice(sums),
            Begin::Sum => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = simd.add_f32s(*out, *sum);
                }
            }
            Begin::Row(row) => {
                let row = V3::as_simd_f32s(&row[..TILE_COLUMNS]).0;
                for ((out, row), sum) in out.iter_mut().zip(row).zip(sums) {
                    *out = simd.add_f32s(*row, *sum);
                }
            }
        }
    }
}

/// Stores a tile of which some rows and columns alone lie in c.
#[inline(always)]
fn part_of_tile(
    sums: Sums,
    (rows, columns): (usize, usize),
    begin: Begin<'_>,
    c: &mut [f32],
    stride: usize,
) {
    for (row, sums) in sums[..rows].iter().enumerate() {
        let sums: [f32; TILE_COLUMNS] = pulp::cast(*sums);
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

/// Multiplies a panel of rows by one of columns.
#[inline(always)]
fn sums(simd: V3, a: &[f32], b: &[f32]) -> Sums {
    let mut sums = [[simd.splat_f32s(0.0); 2]; TILE_ROWS];
    let (a, a_rest) = a.as_chunks::<{ STEPS * TILE_ROWS }>();
    let (b, b_rest) = V3::as_simd_f32s(b).0.as_chunks::<{ STEPS * 2 }>();
    for (a, b) in a.iter().zip(b) {
        fetch(a, AHEAD);
        fetch(a, AHEAD + LINE);
        for (a, b) in a.chunks_exact(TILE_ROWS).zip(b.chunks_exact(2)) {
            step(simd, &mut sums, a, b);
        }
    }
    for (a, b) in a_rest.chunks_exact(TILE_ROWS).zip(b_rest.chunks_exact(2)) {
        step(simd, &mut sums, a, b);
    }
    sums
}

/// Adds the products of one inner element.
#[inline(always)]
fn step(simd: V3, sums: &mut Sums, a: &[f32], b: &[f32x8]) {
    for (sums, a) in sums.iter_mut().zip(a) {
        let a = simd.splat_f32s(*a);
        sums[0] = simd.mul_add_f32s(a, b[0], sums[0]);
        sums[1] = simd.mul_add_f32s(a, b[1], sums[1]);
    }
}
