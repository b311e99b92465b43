//! The kernels of gated linear units.

use super::gate::Gate;
use crate::math::logistic;
use crate::ops::gelu::both_of_tanh_form;
use crate::ops::prefetch::{RUN, fetch_ahead};
use crate::simd::vectorised;

pub(super) fn forward(function: Gate, gate: &[f32], up: &[f32], y: &mut [f32]) {
    match function {
        Gate::Silu => map(gate, up, y, both_of_silu),
        Gate::GeluTanh => map(gate, up, y, both_of_tanh_form),
    }
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
pub(super) fn backward(function: Gate, gate: &mut [f32], up: &mut [f32], dy: &mut [f32]) {
    match function {
        Gate::Silu => map_slopes(gate, up, dy, both_of_silu),
        Gate::GeluTanh => map_slopes(gate, up, dy, both_of_tanh_form),
    }
}

/// x·σ(x) and its derivative.
#[inline(always)]
fn both_of_silu(x: f32) -> (f32, f32) {
    let (sigma, rest) = logistic(x);
    let silu = x * sigma;
    (silu, silu.mul_add(rest, sigma))
}

#[inline(always)]
fn map(gate: &[f32], up: &[f32], y: &mut [f32], both: impl Fn(f32) -> (f32, f32)) {
    vectorised!({
        for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
            *y = both(gate).0 * up;
        }
    });
}

#[inline(always)]
fn map_slopes(gate: &mut [f32], up: &mut [f32], dy: &mut [f32], both: impl Fn(f32) -> (f32, f32)) {
    vectorised!({
        let saved = gate.chunks_mut(RUN).zip(up.chunks_mut(RUN));
        for ((gate, up), dy) in saved.zip(dy.chunks_mut(RUN)) {
            fetch_ahead(gate);
            fetch_ahead(up);
            for ((gate, up), dy) in gate.iter_mut().zip(up).zip(dy) {
                let (value, slope) = both(*gate);
                let (factor, slope_y) = (*up, *dy);
                *gate = slope_y * factor * slope;
                *up = slope_y * value;
                *dy = value * factor;
            }
        }
    });
}
