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

/// Overwrites rows of `width` with slope·(y − target), where the target is 1 at each row's label and 0 elsewhere, and
/// returns Σ (y − target)².
pub(super) fn one_hot(y: &mut [f32], width: usize, labels: &[u32], slope: f32) -> f64 {
    vectorised!({
        let mut total = 0.0;
        for (row, &label) in y.chunks_mut(width).zip(labels) {
            row[label as usize] -= 1.0;
            for run in row.chunks_mut(RUN) {
                total += f64::from(dot(run, run));
                run.iter_mut().for_each(|y| *y *= slope);
            }
        }
        total
    })
}
