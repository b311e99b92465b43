//! Reductions over slices, with a fixed number of lanes.

use crate::simd::vectorised;

/// Number of partial sums: one or two vector registers.
const LANES: usize = 16;

/// Columns per work item of a sum over rows.
pub(super) const COLUMNS: usize = 256;

/// Rows summed in single precision before their sum is added to the total in double precision: one
/// long chain of single-precision additions would lose digits.
const ROWS: usize = 32;

/// Adds to `out` the columns `first ..` of the rows of `x`, summed.
pub(super) fn add_rows<'a>(x: &'a [f32], width: usize, first: usize, out: &mut [f32]) {
    vectorised!({
        let columns = out.len();
        let part = |rows: &'a [f32], first: usize| &rows[first..first + columns];
        let mut total = [0.0f64; COLUMNS];
        for rows in x.chunks(ROWS * width) {
            let mut block = [0.0f32; COLUMNS];
            let quads = rows.chunks_exact(4 * width);
            let rest = quads.remainder().chunks_exact(width);
            for quad in quads {
                let [a, b, c, d] = [0, 1, 2, 3].map(|row| part(quad, row * width + first));
                for (i, sum) in block[..columns].iter_mut().enumerate() {
                    *sum += (a[i] + b[i]) + (c[i] + d[i]);
                }
            }
            for row in rest {
                for (sum, x) in block.iter_mut().zip(part(row, first)) {
                    *sum += x;
                }
            }
            for (total, sum) in total.iter_mut().zip(block) {
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
