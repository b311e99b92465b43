//! The kernels of SwiGLU.

use crate::math::logistic;
use crate::ops::prefetch::{RUN, fetch_ahead};
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
        let saved = gate.chunks_mut(RUN).zip(up.chunks_mut(RUN));
        for ((gate, up), dy) in saved.zip(dy.chunks_mut(RUN)) {
            fetch_ahead(gate);
            fetch_ahead(up);
            for ((gate, up), dy) in gate.iter_mut().zip(up).zip(dy) {
                let (sigma, rest) = logistic(*gate);
                let silu = *gate * sigma;
                let slope = silu.mul_add(rest, sigma);
                let (factor, slope_y) = (*up, *dy);
                *gate = slope_y * factor * slope;
                *up = slope_y * silu;
                *dy = silu * factor;
            }
        }
    });
}
