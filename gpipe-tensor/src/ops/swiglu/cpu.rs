//! The kernels of SwiGLU.

use crate::math::exp;
use crate::simd::vectorised;

/// σ(x) and 1 − σ(x), from e^−|x|, which cannot overflow.
#[inline(always)]
fn sigmoid(x: f32) -> (f32, f32) {
    let e = exp(-x.abs());
    let upper = 1.0 / (1.0 + e);
    let lower = e * upper;
    if x > 0.0 {
        (upper, lower)
    } else {
        (lower, upper)
    }
}

pub(super) fn forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    vectorised!({
        for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate * sigmoid(gate).0 * up;
        }
    });
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
pub(super) fn backward(gate: &mut [f32], up: &mut [f32], dy: &mut [f32]) {
    vectorised!({
        for ((gate, up), dy) in gate.iter_mut().zip(up.iter_mut()).zip(dy.iter_mut()) {
            let (sigma, rest) = sigmoid(*gate);
            let silu = *gate * sigma;
            let slope = silu.mul_add(rest, sigma);
            let (factor, slope_y) = (*up, *dy);
            *gate = slope_y * factor * slope;
            *up = slope_y * silu;
            *dy = silu * factor;
        }
    });
}
