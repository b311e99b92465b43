//! The kernels of the layer normalization.

use crate::ops::rows::{LANES, join, sum, sum_of_squares_around};

/// Normalizes rows: y = (x − mean)/std · gain + bias; `stats` gets the mean and 1/std of each.
pub(super) fn forward(
    x: &[f32],
    gain: &[f32],
    bias: &[f32],
    eps: f32,
    y: &mut [f32],
    stats: &mut [f32],
) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
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
        },
    );
}

/// The gradients of a block of rows: `dx`, and in `dparams` the block's sums, the gain's before the
/// bias's.
pub(super) fn backward(
    x: &[f32],
    stats: &[f32],
    gain: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    dparams: &mut [f32],
) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let width = gain.len();
            dparams.fill(0.0);
            let (dgain, dbias) = dparams.split_at_mut(width);
            let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
            let rows = rows.zip(dx.chunks_exact_mut(width));
            for (((x, dy), dx), stats) in rows.zip(stats.chunks_exact(2)) {
                let (mean, inverse) = (stats[0], stats[1]);
                let mut lanes = [[0.0; LANES]; 2];
                let operands = x
                    .chunks(LANES)
                    .zip(dy.chunks(LANES))
                    .zip(gain.chunks(LANES));
                let sums = dgain.chunks_mut(LANES).zip(dbias.chunks_mut(LANES));
                for (((x, dy), gain), (dgain, dbias)) in operands.zip(sums) {
                    for i in 0..x.len() {
                        let normal = (x[i] - mean) * inverse;
                        let slope = dy[i] * gain[i];
                        lanes[0][i] += slope;
                        lanes[1][i] = slope.mul_add(normal, lanes[1][i]);
                        dgain[i] = dy[i].mul_add(normal, dgain[i]);
                        dbias[i] += dy[i];
                    }
                }
                let [slopes, products] = lanes.map(|l| join(l, |a, b| a + b) / width as f32);
                for (((dx, x), dy), gain) in dx.iter_mut().zip(x).zip(dy).zip(gain) {
                    let normal = (x - mean) * inverse;
                    *dx = inverse * normal.mul_add(-products, dy * gain - slopes);
                }
            }
        },
    );
}

/// Adds the blocks' sums to the total, in order.
pub(super) fn add_blocks(total: &mut [f32], blocks: &[f32]) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            for block in blocks.chunks_exact(total.len()) {
                total.iter_mut().zip(block).for_each(|(sum, x)| *sum += x);
            }
        },
    );
}
