//! The kernels of the root mean square normalization.

use crate::ops::rows::{LANES, join, plus, sum_of_squares_around};
use crate::simd::vectorised;

/// Normalizes rows: y = x·r·(gain + `base`); writes r of each row to `inverse`.
pub(super) fn forward(
    x: &[f32],
    (gain, base): (&[f32], f32),
    eps: f32,
    y: &mut [f32],
    inverse: &mut [f32],
) {
    vectorised!({
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), inverse) in rows.zip(inverse.iter_mut()) {
            let squares = sum_of_squares_around(x, 0.0) / width as f32;
            let factor = 1.0 / (squares + eps).sqrt();
            for ((y, x), gain) in y.iter_mut().zip(x).zip(gain) {
                *y = x * factor * (gain + base);
            }
            *inverse = factor;
        }
    });
}

/// The gradients of a block of rows: `dx`, plus `onto` where there is one, and in `dgain` the block's sum.
pub(super) fn backward(
    x: &[f32],
    inverse: &[f32],
    (gain, base): (&[f32], f32),
    dy: &[f32],
    onto: Option<&[f32]>,
    dx: &mut [f32],
    dgain: &mut [f32],
) {
    vectorised!({
        let width = gain.len();
        dgain.fill(0.0);
        let mut onto = onto.map(|onto| onto.chunks_exact(width));
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
        let rows = rows.zip(dx.chunks_exact_mut(width));
        for (((x, dy), dx), &inverse) in rows.zip(inverse) {
            let product = product(x, dy, gain, base) * inverse / width as f32;
            let operands = x.iter().zip(dy).zip(gain);
            for (((x, dy), gain), (dx, dgain)) in operands.zip(dx.iter_mut().zip(dgain.iter_mut()))
            {
                let normal = x * inverse;
                *dx = inverse * normal.mul_add(-product, dy * (gain + base));
                *dgain = dy.mul_add(normal, *dgain);
            }
            let onto = onto.iter_mut().flat_map(Iterator::next).flatten();
            dx.iter_mut().zip(onto).for_each(|(dx, onto)| *dx += onto);
        }
    });
}

/// Σ dy · (gain + `base`) · x of one row.
#[inline(always)]
fn product(x: &[f32], dy: &[f32], gain: &[f32], base: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let (gains, gain_rest) = gain.as_chunks::<LANES>();
    for ((x, dy), gain) in xs.iter().zip(dys).zip(gains) {
        for i in 0..LANES {
            lanes[i] = (dy[i] * (gain[i] + base)).mul_add(x[i], lanes[i]);
        }
    }
    let mut rest = 0.0;
    for ((x, dy), gain) in x_rest.iter().zip(dy_rest).zip(gain_rest) {
        rest = (dy * (gain + base)).mul_add(*x, rest);
    }
    join(lanes, rest, plus)
}
