//! The CUDA kernels of the root mean square normalization: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::{Before, Spans, add_spans, over_spans};

entries! {
    rms_norm<T>(
        x: In, gain: In, y: Out, inverse: OutF32, rows: U64, width: U64, base: F32, eps: F32,
    );
    rms_norm_grad<T>(
        x: In, inverse: InF32, gain: In, dy: In, onto: In, dx: Out, rows: U64, width: U64,
        base: F32,
    );
    rms_norm_gain_grad<T> 4(
        x: In, inverse: InF32, dy: In, partials: OutF32, rows: U64, width: U64, run: U64,
    );
}

/// Normalizes rows; `inverse` gets one float a row.
pub(crate) fn forward(
    stored: DType,
    [x, gain]: [Pointer; 2],
    y: Pointer,
    inverse: Pointer,
    [rows, width]: [usize; 2],
    [base, eps]: [f32; 2],
) -> Launch {
    let sizes = (rows as u64, width as u64);
    rms_norm::call(stored, x, gain, y, inverse, sizes.0, sizes.1, base, eps).a_warp_each(rows)
}

/// What the gradient reads, and where it goes; `onto` may be null, `partials` has a row for each span of rows.
#[derive(Clone, Copy)]
pub(crate) struct Gradient {
    pub x: Pointer,
    pub inverse: Pointer,
    pub gain: Pointer,
    /// Added to the gain.
    pub base: f32,
    pub dy: Pointer,
    pub onto: Pointer,
    pub dx: Pointer,
    pub partials: Pointer,
    pub dgain: Pointer,
}

/// The gradient in three launches: with respect to x, plus `onto`, and of the gain for each span of rows, whose sum the
/// last writes to `dgain`.
pub(crate) fn backward(stored: DType, at: Gradient, rows: usize, width: usize) -> [Launch; 3] {
    let spans = Spans::new(stored, rows, width);
    let sizes = (rows as u64, width as u64);
    let dx = rms_norm_grad::call(
        stored, at.x, at.inverse, at.gain, at.dy, at.onto, at.dx, sizes.0, sizes.1, at.base,
    );
    let sums = rms_norm_gain_grad::call(
        stored,
        at.x,
        at.inverse,
        at.dy,
        at.partials,
        sizes.0,
        sizes.1,
        spans.run(),
    );
    [
        dx.a_warp_each(rows),
        over_spans(sums, spans),
        add_spans(
            at.partials,
            at.dgain,
            spans.count(),
            width,
            Before::IsOverwritten,
        ),
    ]
}
