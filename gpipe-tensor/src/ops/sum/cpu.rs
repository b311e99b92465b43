//! Reductions over slices, with a fixed number of lanes.

use crate::simd::vectorised;

/// Number of partial sums: one or two vector registers.
const LANES: usize = 16;

/// Rows summed in single precision before their sum is added to the total in double precision: one
/// long chain of single-precision additions would lose digits.
pub(super) const ROWS: usize = 32;

/// Columns of a total in registers and the first-level cache.
pub(super) const COLUMNS: usize = 256;

/// Sums of [`ROWS`] rows each, in `sums` one after the other: of the columns `first ..` of rows of `width`.
pub(super) fn sum_blocks(x: &[f32], width: usize, first: usize, columns: usize, sums: &mut [f32]) {
    vectorised!({
        for (rows, sums) in x.chunks(ROWS * width).zip(sums.chunks_exact_mut(columns)) {
            let part = |row: usize| &rows[row * width + first..][..columns];
            let count = rows.len() / width;
            let quads = count / 4 * 4;
            sums.fill(0.0);
            for row in (0..quads).step_by(4) {
                let [a, b, c, d] = [0, 1, 2, 3].map(|next| part(row + next));
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum += (a[i] + b[i]) + (c[i] + d[i]);
                }
            }
            for row in quads..count {
                for (sum, x) in sums.iter_mut().zip(part(row)) {
                    *sum += x;
                }
            }
        }
    });
}

/// Adds to `out`, of at most [`COLUMNS`] elements, the columns `first ..` of `sums`, rows of `width`, in double
/// precision.
pub(super) fn add_sums(sums: &[f32], width: usize, first: usize, out: &mut [f32]) {
    vectorised!({
        let columns = out.len();
        let mut total = [0.0f64; COLUMNS];
        for sums in sums.chunks_exact(width) {
            for (total, &sum) in total.iter_mut().zip(&sums[first..][..columns]) {
                *total += f64::from(sum);
            }
        }
        for (out, total) in out.iter_mut().zip(total) {
            *out += total as f32;
        }
    });
}

/// The sum, in double precision.
pub(super) fn sum(x: &[f32]) -> f64 {
    reduce(
        x,
        #[inline(always)]
        |sum, x| sum + x,
    )
}

/// The sum of the squares, in double precision: a float's square is exact there.
pub(super) fn sum_of_squares(x: &[f32]) -> f64 {
    reduce(
        x,
        #[inline(always)]
        |sum, x| x.mul_add(x, sum),
    )
}

/// The bits of the largest magnitude. Bits are ordered as magnitudes, with infinity and then NaN above
/// all.
pub(super) fn max_magnitude(x: &[f32]) -> u32 {
    vectorised!(x.iter().map(|x| x.abs().to_bits()).fold(0, u32::max))
}

/// Element i goes to lane i % 16; the lanes are added in order.
#[inline(always)]
fn reduce(x: &[f32], step: impl Fn(f64, f64) -> f64) -> f64 {
    vectorised!({
        let mut lanes = [0.0f64; LANES];
        let whole = x.chunks_exact(LANES);
        let rest = whole.remainder();
        for chunk in whole {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = step(*lane, f64::from(x));
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = step(*lane, f64::from(x));
        }
        lanes.iter().sum()
    })
}
