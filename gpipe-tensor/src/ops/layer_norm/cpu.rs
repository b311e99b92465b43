//! The kernels of the layer normalization.

use crate::ops::rows::{LANES, join, plus, sum, sum_of_squares_around};
use crate::simd::vectorised;

/// Normalizes rows: y = (x − mean)/std · gain + bias; writes the mean and 1/std of each row to `stats`.
pub(super) fn forward(
    x: &[f32],
    gain: &[f32],
    bias: &[f32],
    eps: f32,
    y: &mut [f32],
    stats: &mut [f32],
) {
    vectorised!({
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), stats) in rows.zip(stats.chunks_exact_mut(2)) {
            let mean = sum(x) / width as f32;
            let variance = sum_of_squares_around(x, mean) / width as f32;
            let inverse = 1.0 / (variance + eps).sqrt();
            for (((y, x), gain), bias) in y.iter_mut().zip(x).zip(gain).zip(bias) {
                *y = ((x - mean) * inverse).mul_add(*gain, *bias);
            }
            stats.copy_from_slice(&[mean, inverse]);
        }
    });
}

/// The gradients of a block of rows: `dx`, plus `onto` where there is one, and in `dparams` the block's sums, first those of the gain,
/// then those of the bias.
pub(super) fn backward(
    x: &[f32],
    stats: &[f32],
    gain: &[f32],
    dy: &[f32],
    onto: Option<&[f32]>,
    dx: &mut [f32],
    dparams: &mut [f32],
) {
    vectorised!({
        let width = gain.len();
        dparams.fill(0.0);
        let (dgain, dbias) = dparams.split_at_mut(width);
        let mut onto = onto.map(|onto| onto.chunks_exact(width));
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
        let rows = rows.zip(dx.chunks_exact_mut(width));
        for (((x, dy), dx), stats) in rows.zip(stats.chunks_exact(2)) {
            let (mean, inverse) = (stats[0], stats[1]);
            let [slopes, products] = sums(x, mean, dy, gain);
            let (slope, product) = (slopes / width as f32, products * inverse / width as f32);
            let operands = x.iter().zip(dy).zip(gain);
            let out = dx.iter_mut().zip(dgain.iter_mut()).zip(dbias.iter_mut());
            for (((x, dy), gain), ((dx, dgain), dbias)) in operands.zip(out) {
                let normal = (x - mean) * inverse;
                *dx = inverse * normal.mul_add(-product, dy * gain - slope);
                *dgain = dy.mul_add(normal, *dgain);
                *dbias += dy;
            }
            let onto = onto.iter_mut().flat_map(Iterator::next).flatten();
            dx.iter_mut().zip(onto).for_each(|(dx, onto)| *dx += onto);
        }
    });
}

/// Σ dy · gain and Σ dy · gain · (x − mean) of one row.
#[inline(always)]
fn sums(x: &[f32], mean: f32, dy: &[f32], gain: &[f32]) -> [f32; 2] {
    let mut lanes = [[0.0; LANES]; 2];
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let (gains, gain_rest) = gain.as_chunks::<LANES>();
    for ((x, dy), gain) in xs.iter().zip(dys).zip(gains) {
        for i in 0..LANES {
            let slope = dy[i] * gain[i];
            lanes[0][i] += slope;
            lanes[1][i] = slope.mul_add(x[i] - mean, lanes[1][i]);
        }
    }
    let mut rest = [0.0; 2];
    for ((x, dy), gain) in x_rest.iter().zip(dy_rest).zip(gain_rest) {
        let slope = dy * gain;
        rest[0] += slope;
        rest[1] = slope.mul_add(x - mean, rest[1]);
    }
    [join(lanes[0], rest[0], plus), join(lanes[1], rest[1], plus)]
}

/// Adds the blocks' sums to the total, in order.
pub(super) fn add_blocks(total: &mut [f32], blocks: &[f32]) {
    vectorised!({
        for block in blocks.chunks_exact(total.len()) {
            total.iter_mut().zip(block).for_each(|(sum, x)| *sum += x);
        }
    });
}
