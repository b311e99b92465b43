//! The kernel of the binary cross-entropy.

use crate::math::exp;
use crate::simd::vectorised;

/// Overwrites y with factor·(σ(y) − target) and returns the sum of the losses.
pub(super) fn binary_cross_entropy(y: &mut [f32], target: &[f32], factor: f32) -> f64 {
    vectorised!({
        let mut total = 0.0;
        for (y, &target) in y.iter_mut().zip(target) {
            let x = *y;
            let e = exp(-x.abs());
            let above = if x > 0.0 { x } else { 0.0 };
            // A NaN is in the product.
            total += f64::from(above) - f64::from(x) * f64::from(target) + f64::from(e).ln_1p();
            let upper = 1.0 / (1.0 + e);
            let sigma = if x > 0.0 { upper } else { e * upper };
            *y = factor * (sigma - target);
        }
        total
    })
}
