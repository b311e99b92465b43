//! The CUDA kernels of the layer normalization: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::{Before, Spans, add_spans, over_spans};

entries! {
    layer_norm<T>(x: In, gain: In, bias: In, y: Out, stats: OutF32, rows: U64, width: U64, eps: F32);
    layer_norm_grad<T>(
        x: In, stats: InF32, gain: In, dy: In, onto: In, dx: Out, rows: U64, width: U64,
    );
    layer_norm_params_grad<T> 4(
        x: In, stats: InF32, dy: In, partials: OutF32, rows: U64, width: U64, run: U64,
    );
}

/// Normalizes rows; `stats` gets two floats a row.
pub(crate) fn forward(
    stored: DType,
    [x, gain, bias]: [Pointer; 3],
    y: Pointer,
    stats: Pointer,
    rows: usize,
    width: usize,
    eps: f32,
) -> Launch {
    let sizes = (rows as u64, width as u64);
    layer_norm::call(stored, x, gain, bias, y, stats, sizes.0, sizes.1, eps).a_warp_each(rows)
}

/// Operands and result of [`input_grad`]; `onto` may be null.
pub(crate) struct InputGrad {
    pub x: Pointer,
    pub stats: Pointer,
    pub gain: Pointer,
    pub dy: Pointer,
    pub onto: Pointer,
    pub dx: Pointer,
}

/// Operands, partial sums and result of [`params_grad`].
pub(crate) struct ParamsGrad {
    pub x: Pointer,
    pub stats: Pointer,
    pub dy: Pointer,
    pub partials: Pointer,
    pub dparams: Pointer,
}

/// The gradient with respect to x, plus `onto`.
pub(crate) fn input_grad(
    stored: DType,
    InputGrad {
        x,
        stats,
        gain,
        dy,
        onto,
        dx,
    }: InputGrad,
    rows: usize,
    width: usize,
) -> Launch {
    let sizes = (rows as u64, width as u64);
    layer_norm_grad::call(stored, x, stats, gain, dy, onto, dx, sizes.0, sizes.1).a_warp_each(rows)
}

/// The gradients of gain and bias in two launches: of each span of rows to two rows of `partials`, and
/// their sums to `dparams`, the gain's before the bias's.
pub(crate) fn params_grad(
    stored: DType,
    ParamsGrad {
        x,
        stats,
        dy,
        partials,
        dparams,
    }: ParamsGrad,
    rows: usize,
    width: usize,
) -> [Launch; 2] {
    let spans = Spans::new(stored, rows, width);
    let (all, run) = (rows as u64, spans.run());
    let sums = layer_norm_params_grad::call(stored, x, stats, dy, partials, all, width as u64, run);
    [
        over_spans(sums, spans),
        add_spans(
            partials,
            dparams,
            spans.count(),
            2 * width,
            Before::IsOverwritten,
        ),
    ]
}
