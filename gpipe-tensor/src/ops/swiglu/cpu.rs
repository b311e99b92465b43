//! The kernels of SwiGLU.

use crate::math::logistic;
use crate::simd::vectorised;

pub(super) fn forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    vectorised!({
        for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate * logistic(gate).0 * up;
        }
    });
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
pub(super) fn backward(gate: &mut [f32], up: &mut [f32], dy: &mut [f32]) {
    vectorised!({
        for ((gate, up), dy) in gate.iter_mut().zip(up.iter_mut()).zip(dy.iter_mut()) {
            let (sigma, rest) = logistic(*gate);
            let silu = *gate * sigma;
            let slope = silu.mul_add(rest, sigma);
            let (factor, slope_y) = (*up, *dy);
            *gate = slope_y * factor * slope;
            *up = slope_y * silu;
            *dy = silu * factor;
        }
    });
}
