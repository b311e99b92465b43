//! The kernel of the squared error.

use crate::ops::rows::{RUN, dot};
use crate::simd::vectorised;

/// Overwrites y with slope·(y − target) and returns Σ (y − target)².
pub(super) fn squared_error(y: &mut [f32], target: &[f32], slope: f32) -> f64 {
    vectorised!({
        let mut total = 0.0;
        for (y, target) in y.chunks_mut(RUN).zip(target.chunks(RUN)) {
            for (y, target) in y.iter_mut().zip(target) {
                *y -= target;
            }
            total += f64::from(dot(y, y));
            y.iter_mut().for_each(|y| *y *= slope);
        }
        total
    })
}
