//! Products of a tile: some rows of two vectors.

use std::ops::Range;

use pulp::Simd;

use super::DEPTH;
use super::ahead::Ahead;
use crate::ops::matmul::packed::kernel::sums;

/// The sums of a tile.
type Tile<S, const ROWS: usize> = [[<S as Simd>::f32s; 2]; ROWS];

/// Multiplies `ROWS` rows of `a`, in blocks of `INNER` elements of each row, by two vectors of columns of `b`.
#[inline(always)]
pub(super) fn product<S: Simd, const ROWS: usize, const INNER: usize, const WIDTH: usize>(
    simd: S,
    a: &[[[f32; INNER]; ROWS]],
    b: &[[[f32; WIDTH]; INNER]],
    ahead: &mut Ahead,
) -> Tile<S, ROWS> {
    let mut sums = [[simd.splat_f32s(0.0); 2]; ROWS];
    for (a, b) in a.iter().zip(b) {
        ahead.ask();
        for (i, b) in b.iter().enumerate() {
            let b = S::as_simd_f32s(b).0;
            for row in 0..ROWS {
                let a = simd.splat_f32s(a[row][i]);
                sums[row][0] = simd.mul_add_f32s(a, b[0], sums[row][0]);
                sums[row][1] = simd.mul_add_f32s(a, b[1], sums[row][1]);
            }
        }
    }
    sums
}

/// Stores a tile.
#[inline(always)]
pub(super) fn store<S: Simd, const ROWS: usize, const WIDTH: usize>(
    tile: Tile<S, ROWS>,
    out: &mut [[f32; WIDTH]; ROWS],
) {
    for (out, sums) in out.iter_mut().zip(tile) {
        S::as_mut_simd_f32s(out).0.copy_from_slice(&sums);
    }
}

/// Adds a tile to rows that begin every `stride` floats.
#[inline(always)]
pub(super) fn add<S: Simd, const ROWS: usize, const WIDTH: usize>(
    simd: S,
    tile: Tile<S, ROWS>,
    (out, stride): (&mut [f32], usize),
) {
    let out = &mut out[..(ROWS - 1) * stride + WIDTH];
    for (row, sums) in tile.iter().enumerate() {
        let out = S::as_mut_simd_f32s(&mut out[row * stride..][..WIDTH]).0;
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = simd.add_f32s(*out, *sum);
        }
    }
}

/// Sums over keys what panels of `ROWS` elements of all `len` keys have, times the keys' rows of vectors: a row of vectors
/// for each element.
#[inline(always)]
pub(super) fn sum_over_keys<S: Simd, const ROWS: usize, const WIDTH: usize>(
    simd: S,
    (panels, len): (&[f32], usize),
    keys: Range<usize>,
    rows: &[[f32; WIDTH]],
    out: &mut [[f32; WIDTH]],
) {
    for (panel, out) in panels.chunks_exact(ROWS * len).zip(out.chunks_mut(ROWS)) {
        for first in keys.clone().step_by(DEPTH) {
            let end = keys.end.min(first + DEPTH);
            let a = &panel[first * ROWS..end * ROWS];
            let b = rows[first - keys.start..end - keys.start].as_flattened();
            let begins = first == keys.start;
            match out.len() {
                0..=4 => put(simd, sums::<S, ROWS, 4>(simd, a, b), begins, out),
                5..=8 if ROWS > 8 => put(simd, sums::<S, ROWS, 8>(simd, a, b), begins, out),
                _ => put(simd, sums::<S, ROWS, ROWS>(simd, a, b), begins, out),
            }
        }
    }
}

/// Stores the first rows of a tile if the sums begin with it, and adds them otherwise.
#[inline(always)]
fn put<S: Simd, const ROWS: usize, const WIDTH: usize>(
    simd: S,
    tile: Tile<S, ROWS>,
    begins: bool,
    out: &mut [[f32; WIDTH]],
) {
    for (out, sums) in out.iter_mut().zip(tile) {
        for (out, sum) in S::as_mut_simd_f32s(out).0.iter_mut().zip(sums) {
            *out = match begins {
                true => sum,
                false => simd.add_f32s(*out, sum),
            };
        }
    }
}
