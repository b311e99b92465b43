//! Transposes in squares of 8 by 8 floats, by AVX2.

use std::arch::x86_64::__m256;

use pulp::NullaryFnOnce;
use pulp::x86::V3;

use crate::ops::prefetch::fetch;

/// Floats of a vector.
pub(super) const LANES: usize = 8;

/// Copies columns, which begin every `from_stride` floats, to the rows of `out`, which begin every `stride` floats;
/// returns how many that was: whole squares alone, and none without AVX2 or if the rows make no whole squares.
pub(super) fn copy_in_rows(
    (from, from_stride): (&[f32], usize),
    columns: usize,
    (out, stride): (&mut [f32], usize),
) -> usize {
    let simd = match out.len() % (LANES * stride) {
        0 => V3::try_new(),
        _ => None,
    };
    let Some(simd) = simd else { return 0 };
    let columns = columns / LANES * LANES;
    simd.vectorize(CopyInRows {
        simd,
        from,
        from_stride,
        columns,
        out,
        stride,
    });
    columns
}

struct CopyInRows<'a> {
    simd: V3,
    from: &'a [f32],
    from_stride: usize,
    columns: usize,
    out: &'a mut [f32],
    stride: usize,
}

impl NullaryFnOnce for CopyInRows<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for column in (0..self.columns).step_by(LANES) {
            let rows = self.out.chunks_exact_mut(LANES * self.stride);
            for (square, rows) in rows.enumerate() {
                let mut floats = [[0.0; LANES]; LANES];
                for (i, floats) in floats.iter_mut().enumerate() {
                    let place = (column + i) * self.from_stride + square * LANES;
                    fetch(self.from, place + LANES * self.from_stride);
                    floats.copy_from_slice(&self.from[place..][..LANES]);
                }
                for (i, floats) in transposed(self.simd, floats).iter().enumerate() {
                    rows[i * self.stride + column..][..LANES].copy_from_slice(floats);
                }
            }
        }
    }
}

/// The columns of a square of these rows.
#[inline(always)]
pub(super) fn transposed(simd: V3, rows: [[f32; LANES]; LANES]) -> [[f32; LANES]; LANES] {
    let avx = simd.avx;
    let rows: [__m256; LANES] = pulp::cast(rows);
    let [a, b, c, d, e, f, g, h] = rows;
    let upper = in_halves(simd, [a, b, c, d]);
    let lower = in_halves(simd, [e, f, g, h]);
    let mut columns = rows;
    for i in 0..LANES / 2 {
        columns[i] = avx._mm256_permute2f128_ps::<0x20>(upper[i], lower[i]);
        columns[LANES / 2 + i] = avx._mm256_permute2f128_ps::<0x31>(upper[i], lower[i]);
    }
    pulp::cast(columns)
}

/// Four rows of both halves, transposed each by itself.
#[inline(always)]
fn in_halves(simd: V3, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    let avx = simd.avx;
    let (ab, ab_high) = (avx._mm256_unpacklo_ps(a, b), avx._mm256_unpackhi_ps(a, b));
    let (cd, cd_high) = (avx._mm256_unpacklo_ps(c, d), avx._mm256_unpackhi_ps(c, d));
    [
        avx._mm256_shuffle_ps::<0x44>(ab, cd),
        avx._mm256_shuffle_ps::<0xEE>(ab, cd),
        avx._mm256_shuffle_ps::<0x44>(ab_high, cd_high),
        avx._mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
    ]
}
