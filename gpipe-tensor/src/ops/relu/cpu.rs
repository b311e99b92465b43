//! The kernels of the rectifier.

use crate::simd::vectorised;

/// y = x where positive, else 0; NaN stays NaN.
pub(super) fn forward(x: &[f32], y: &mut [f32]) {
    vectorised!({
        for (y, &x) in y.iter_mut().zip(x) {
            *y = if x <= 0.0 { 0.0 } else { x };
        }
    });
}

/// dx = dy where y is not zero, else 0.
pub(super) fn backward(y: &[f32], dy: &[f32], dx: &mut [f32]) {
    vectorised!({
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = if y <= 0.0 { 0.0 } else { dy };
        }
    });
}

/// y = x where positive, else slope · x; NaN stays NaN.
pub(super) fn leaky(slope: f32, x: &[f32], y: &mut [f32]) {
    vectorised!({
        for (y, &x) in y.iter_mut().zip(x) {
            *y = if x <= 0.0 { slope * x } else { x };
        }
    });
}

/// dx = dy where y is above zero, else slope · dy.
pub(super) fn leaky_grad(slope: f32, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    vectorised!({
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = if y <= 0.0 { slope * dy } else { dy };
        }
    });
}
