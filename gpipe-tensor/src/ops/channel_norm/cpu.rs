//! Loops over blocks of rows of channels.

use super::plan::Extents;
use crate::parallel::rows_per_chunk;
use crate::simd::vectorised;

/// Most rows of a block: their sums have single precision.
const MOST_ROWS: usize = 1024;

impl Extents {
    /// Rows of a block of a group, of which the last may have fewer.
    pub fn block(self) -> usize {
        rows_per_chunk(self.channels).min(MOST_ROWS).min(self.rows)
    }

    pub fn blocks_of_group(self) -> usize {
        self.rows.div_ceil(self.block())
    }

    pub fn blocks(self) -> usize {
        self.groups * self.blocks_of_group()
    }

    /// The blocks of all groups, each with the number of its group.
    pub fn cut(self, x: &[f32]) -> impl Iterator<Item = (usize, &[f32])> + Send {
        let groups = x.chunks(self.rows * self.channels).enumerate();
        groups.flat_map(move |(group, x)| {
            let blocks = x.chunks(self.block() * self.channels);
            blocks.map(move |block| (group, block))
        })
    }

    pub fn cut_mut(self, x: &mut [f32]) -> impl Iterator<Item = &mut [f32]> + Send {
        x.chunks_mut(self.rows * self.channels)
            .flat_map(move |x| x.chunks_mut(self.block() * self.channels))
    }
}

/// The mean of each channel in a block of rows, and the sum of squared distances from it, in `out`.
pub(super) fn statistics(x: &[f32], channels: usize, out: &mut [f32]) {
    vectorised!({
        let (mean, squares) = out.split_at_mut(channels);
        mean.fill(0.0);
        let quads = x.chunks_exact(4 * channels);
        let rest = quads.remainder();
        for quad in quads {
            let (a, b) = quad.split_at(2 * channels);
            let ((a, b), (c, d)) = (a.split_at(channels), b.split_at(channels));
            for ((((sum, a), b), c), d) in mean.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *sum += (a + b) + (c + d);
            }
        }
        for row in rest.chunks_exact(channels) {
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        let rows = (x.len() / channels) as f32;
        mean.iter_mut().for_each(|sum| *sum /= rows);
        squares.fill(0.0);
        for row in x.chunks_exact(channels) {
            for ((sum, x), mean) in squares.iter_mut().zip(row).zip(&*mean) {
                let distance = x - mean;
                *sum = distance.mul_add(distance, *sum);
            }
        }
    });
}

/// Joins the statistics of blocks, each with its number of rows, to mean and biased variance: the
/// mean of all, and the blocks' squares plus those of the distances of their means.
pub(super) fn join_statistics<'a>(
    blocks: impl Iterator<Item = (usize, &'a [f32])> + Clone,
    mean: &mut [f32],
    variance: &mut [f32],
) {
    let channels = mean.len();
    let total: usize = blocks.clone().map(|(rows, _)| rows).sum();
    let mut means = vec![0.0f64; channels];
    for (rows, block) in blocks.clone() {
        for (mean, x) in means.iter_mut().zip(block) {
            *mean += rows as f64 / total as f64 * f64::from(*x);
        }
    }
    let mut squares = vec![0.0f64; channels];
    for (rows, block) in blocks {
        let (of_means, of_squares) = block.split_at(channels);
        let parts = of_means.iter().zip(of_squares).zip(&means);
        for (sum, ((x, square), mean)) in squares.iter_mut().zip(parts) {
            let distance = f64::from(*x) - mean;
            *sum += f64::from(*square) + rows as f64 * distance * distance;
        }
    }
    for (to, mean) in mean.iter_mut().zip(means) {
        *to = mean as f32;
    }
    for (to, square) in variance.iter_mut().zip(squares) {
        *to = (square / total as f64) as f32;
    }
}

/// y = (x − mean) · scale + bias for a block of rows.
pub(super) fn normalize(x: &[f32], [mean, scale, bias]: [&[f32]; 3], y: &mut [f32]) {
    vectorised!({
        let channels = mean.len();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            let coefficients = mean.iter().zip(scale).zip(bias);
            for ((y, x), ((mean, scale), bias)) in y.iter_mut().zip(x).zip(coefficients) {
                *y = (x - mean).mul_add(*scale, *bias);
            }
        }
    });
}

/// Σ dy · (x − mean) and Σ dy of each channel in a block of rows, in `out`.
pub(super) fn sums(x: &[f32], mean: &[f32], dy: &[f32], out: &mut [f32]) {
    vectorised!({
        let channels = mean.len();
        out.fill(0.0);
        let (products, slopes) = out.split_at_mut(channels);
        for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
            let sums = products.iter_mut().zip(slopes.iter_mut());
            for ((product, slope), ((x, mean), dy)) in sums.zip(x.iter().zip(mean).zip(dy)) {
                *product = (x - mean).mul_add(*dy, *product);
                *slope += dy;
            }
        }
    });
}

/// Adds up the sums of blocks, in double precision: `products` are multiplied with 1/σ.
pub(super) fn join_sums<'a>(
    blocks: impl Iterator<Item = &'a [f32]>,
    inverse: &[f32],
    products: &mut [f32],
    slopes: &mut [f32],
) {
    let channels = inverse.len();
    let mut totals = vec![0.0f64; 2 * channels];
    for block in blocks {
        for (total, sum) in totals.iter_mut().zip(block) {
            *total += f64::from(*sum);
        }
    }
    for ((to, total), inverse) in products.iter_mut().zip(&totals).zip(inverse) {
        *to = (total * f64::from(*inverse)) as f32;
    }
    for (to, total) in slopes.iter_mut().zip(&totals[channels..]) {
        *to = *total as f32;
    }
}

/// dx = scale · (dy − slope − (x − mean) · product) for a block of rows.
pub(super) fn input_grad(
    x: &[f32],
    dy: &[f32],
    [mean, scale, slope, product]: [&[f32]; 4],
    dx: &mut [f32],
) {
    vectorised!({
        let channels = mean.len();
        let rows = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(channels)) {
            let coefficients = mean.iter().zip(scale).zip(slope).zip(product);
            let operands = x.iter().zip(dy).zip(coefficients);
            for (dx, ((x, dy), (((mean, scale), slope), product))) in dx.iter_mut().zip(operands) {
                *dx = scale * (x - mean).mul_add(-product, dy - slope);
            }
        }
    });
}
