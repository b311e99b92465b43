//! The kernels of the softmax over rows.

use crate::ops::rows::{dot, exponentials, max};
use crate::simd::vectorised;

/// The elements of a row that the softmax covers.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// All elements.
    Row,
    /// Causal: elements 0..=i of row i of a square. The number is the first row of the chunk.
    Triangle(usize),
}

impl Reach {
    /// Number of elements covered in row `index` of a chunk of rows of `width`.
    #[inline(always)]
    fn of(self, index: usize, width: usize) -> usize {
        match self {
            Self::Row => width,
            Self::Triangle(first) => (first + index) % width + 1,
        }
    }
}

/// y = e^x / Σ e^x over the covered elements of each row, 0 elsewhere.
pub(super) fn forward(reach: Reach, width: usize, x: &[f32], y: &mut [f32]) {
    vectorised!({
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for (index, (x, y)) in rows.enumerate() {
            let reach = reach.of(index, width);
            let (y, beyond) = y.split_at_mut(reach);
            beyond.fill(0.0);
            y.copy_from_slice(&x[..reach]);
            let factor = (1.0 / exponentials(y, max(&x[..reach]))) as f32;
            y.iter_mut().for_each(|y| *y *= factor);
        }
    });
}

/// dx = y · (dy − Σ y·dy) over the covered elements of each row, 0 elsewhere.
pub(super) fn backward(reach: Reach, width: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    vectorised!({
        let rows = y.chunks_exact(width).zip(dy.chunks_exact(width));
        for (index, ((y, dy), dx)) in rows.zip(dx.chunks_exact_mut(width)).enumerate() {
            let reach = reach.of(index, width);
            let (dx, beyond) = dx.split_at_mut(reach);
            beyond.fill(0.0);
            let (y, dy) = (&y[..reach], &dy[..reach]);
            let mean = dot(y, dy);
            for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = y * (dy - mean);
            }
        }
    });
}
