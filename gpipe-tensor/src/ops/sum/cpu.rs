//! Reductions over slices, with a fixed number of lanes.

/// Partial sums that are carried side by side: a vector register or two.
const LANES: usize = 16;

/// Columns that one item of a sum over rows covers.
pub(super) const COLUMNS: usize = 256;

/// Rows that are summed before their sum joins the total: a sum of sums loses fewer digits than
/// one long chain.
const ROWS: usize = 32;

/// Adds to `out` the columns `first ..` of the rows of `x`, summed.
pub(super) fn add_rows(x: &[f32], width: usize, first: usize, out: &mut [f32]) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let columns = out.len();
            let mut total = [0.0f32; COLUMNS];
            let total = &mut total[..columns];
            for rows in x.chunks(ROWS * width) {
                let mut block = [0.0f32; COLUMNS];
                let block = &mut block[..columns];
                for row in rows.chunks_exact(width) {
                    let row = &row[first..first + columns];
                    block.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                }
                total
                    .iter_mut()
                    .zip(&*block)
                    .for_each(|(total, sum)| *total += sum);
            }
            out.iter_mut()
                .zip(&*total)
                .for_each(|(out, total)| *out += total);
        },
    );
}

/// The sum, in double precision.
pub(super) fn sum(x: &[f32]) -> f64 {
    reduce(x, |sum, x| sum + x)
}

/// The sum of the squares, in double precision: a float's square is exact there.
pub(super) fn sum_of_squares(x: &[f32]) -> f64 {
    reduce(x, |sum, x| x.mul_add(x, sum))
}

/// The largest magnitude as bits, which are ordered as magnitudes are, infinity and what is not a
/// number above all.
pub(super) fn max_magnitude(x: &[f32]) -> u32 {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || x.iter().map(|x| x.abs().to_bits()).fold(0, u32::max),
    )
}

/// Element i goes to lane i % 16; the lanes are added in order.
#[inline(always)]
fn reduce(x: &[f32], step: impl Fn(f64, f64) -> f64) -> f64 {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
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
        },
    )
}
