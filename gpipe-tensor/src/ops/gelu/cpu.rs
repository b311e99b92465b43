//! The kernels of the Gaussian error linear unit.

use super::form::Gelu;
use crate::math::{logistic, normal};
use crate::ops::prefetch::{RUN, fetch_ahead};
use crate::simd::vectorised;

/// √(2/π) and the coefficient of x³ in the tanh form.
const SCALE: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
const CUBIC: f32 = 0.044_715;

/// 1/√(2π)
const DENSITY: f32 = 0.5 * SCALE;

/// Beyond this magnitude the tanh form is 0 or x to a float.
const FAR: f32 = 10.7;

pub(super) fn forward(form: Gelu, x: &[f32], y: &mut [f32]) {
    match form {
        Gelu::Erf => map(x, y, erf_form),
        Gelu::Tanh => map(x, y, tanh_form),
    }
}

pub(super) fn backward(form: Gelu, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    match form {
        Gelu::Erf => map_slope(x, dy, dx, slope_of_erf_form),
        Gelu::Tanh => map_slope(x, dy, dx, slope_of_tanh_form),
    }
}

/// Writes the function of `x` to `y` and multiplies `dy` by the derivative.
pub(super) fn both(form: Gelu, x: &[f32], y: &mut [f32], dy: &mut [f32]) {
    match form {
        Gelu::Erf => map_both(x, y, dy, both_of_erf_form),
        Gelu::Tanh => map_both(x, y, dy, both_of_tanh_form),
    }
}

#[inline(always)]
fn erf_form(x: f32) -> f32 {
    both_of_erf_form(x).0
}

#[inline(always)]
fn slope_of_erf_form(x: f32) -> f32 {
    both_of_erf_form(x).1
}

#[inline(always)]
fn tanh_form(x: f32) -> f32 {
    both_of_tanh_form(x).0
}

#[inline(always)]
fn slope_of_tanh_form(x: f32) -> f32 {
    both_of_tanh_form(x).1
}

/// The function and its derivative.
#[inline(always)]
fn both_of_erf_form(x: f32) -> (f32, f32) {
    let (cumulative, bell) = normal(x);
    (x * cumulative, (x * DENSITY).mul_add(bell, cumulative))
}

/// The function and its derivative.
#[inline(always)]
pub(in crate::ops) fn both_of_tanh_form(x: f32) -> (f32, f32) {
    let sigmoid = Sigmoid::at(x);
    (x * sigmoid.value, x.mul_add(sigmoid.slope, sigmoid.value))
}

/// σ(2u) = ½(1 + tanh u) for u = √(2/π)·(x + 0.044715·x³), and its derivative with respect to x.
struct Sigmoid {
    value: f32,
    slope: f32,
}

impl Sigmoid {
    #[inline(always)]
    fn at(x: f32) -> Self {
        let square = x * x;
        // A comparison lets through what is not a number.
        let square = if square > FAR * FAR {
            FAR * FAR
        } else {
            square
        };
        let twice_u = x * square.mul_add(2.0 * SCALE * CUBIC, 2.0 * SCALE);
        let derivative_of_twice_u = square.mul_add(6.0 * SCALE * CUBIC, 2.0 * SCALE);
        let (value, rest) = logistic(twice_u);
        Self {
            value,
            slope: value * rest * derivative_of_twice_u,
        }
    }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorised!({
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f(x);
        }
    });
}

#[inline(always)]
fn map_slope(x: &[f32], dy: &[f32], dx: &mut [f32], slope: impl Fn(f32) -> f32) {
    vectorised!({
        let runs = dx.chunks_mut(RUN).zip(x.chunks(RUN)).zip(dy.chunks(RUN));
        for ((dx, x), dy) in runs {
            fetch_ahead(x);
            for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                *dx = dy * slope(x);
            }
        }
    });
}

#[inline(always)]
fn map_both(x: &[f32], y: &mut [f32], dy: &mut [f32], both: impl Fn(f32) -> (f32, f32)) {
    vectorised!({
        let runs = y.chunks_mut(RUN).zip(dy.chunks_mut(RUN)).zip(x.chunks(RUN));
        for ((y, dy), x) in runs {
            fetch_ahead(x);
            for ((y, dy), &x) in y.iter_mut().zip(dy.iter_mut()).zip(x) {
                let (value, slope) = both(x);
                *y = value;
                *dy *= slope;
            }
        }
    });
}
