//! The CUDA kernels of the normalization of channels: entry points, parameters and grids.

use super::plan::Extents;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::ops::sum::kernels::RUN;

entries! {
    channel_statistics<T>(x: In, partials: OutF32, rows: U64, channels: U64);
    join_channel_statistics(
        partials: InF32, stats: OutF32, groups: U64, rows: U64, channels: U64,
    );
    channel_norm<T>(
        x: In, mean: InF32, variance: InF32, gain: In, bias: In, y: Out,
        groups: U64, rows: U64, channels: U64, eps: F32,
    );
    channel_norm_sums<T>(
        x: In, mean: InF32, dy: In, partials: OutF32, rows: U64, channels: U64,
    );
    join_channel_norm_sums(
        partials: InF32, variance: InF32, sums: OutF32,
        groups: U64, rows: U64, channels: U64, eps: F32,
    );
    channel_norm_grad<T>(
        x: In, mean: InF32, variance: InF32, gain: In, sums: InF32, dy: In, dx: Out,
        groups: U64, rows: U64, channels: U64, eps: F32,
    );
    merge_channel_statistics(
        mean: BothF32, variance: BothF32, part: InF32, channels: U64, share: F32, spread: F32,
    );
    moving_average(value: BothF32, next: InF32, n: U64, momentum: F32, scale: F32);
}

/// Groups, rows of each and channels, as kernels take them.
fn sizes(extents: Extents) -> [u64; 3] {
    [extents.groups, extents.rows, extents.channels].map(|size| size as u64)
}

/// Floats of the partial sums of all runs of rows.
pub(crate) fn partials(extents: Extents) -> usize {
    2 * extents.groups * extents.rows.div_ceil(RUN) * extents.channels
}

/// Statistics in two launches: of each run of rows, and these joined.
pub(crate) fn statistics(
    stored: DType,
    x: Pointer,
    partials: Pointer,
    stats: Pointer,
    extents: Extents,
) -> [Launch; 2] {
    let [groups, rows, channels] = sizes(extents);
    let runs = extents.groups * extents.rows.div_ceil(RUN);
    [
        channel_statistics::call(stored, x, partials, rows, channels)
            .over_columns(extents.channels, runs),
        join_channel_statistics::call(DType::F32, partials, stats, groups, rows, channels)
            .a_warp_each(extents.groups * extents.channels),
    ]
}

/// What channels are normalized by; gain and bias may be null.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub mean: Pointer,
    pub variance: Pointer,
    pub gain: Pointer,
    pub bias: Pointer,
    pub eps: f32,
}

/// The normalization of x.
pub(crate) fn normalize(
    stored: DType,
    x: Pointer,
    norm: Norm,
    y: Pointer,
    extents: Extents,
) -> Launch {
    let [groups, rows, channels] = sizes(extents);
    let Norm {
        mean,
        variance,
        gain,
        bias,
        eps,
    } = norm;
    channel_norm::call(
        stored, x, mean, variance, gain, bias, y, groups, rows, channels, eps,
    )
    .over_elements(extents.groups * extents.rows * extents.channels)
}

/// Operands, partial sums and results of [`gradients`].
pub(crate) struct Gradients {
    pub x: Pointer,
    pub dy: Pointer,
    pub partials: Pointer,
    pub sums: Pointer,
    pub dx: Pointer,
}

/// The gradients in three launches: sums of each run of rows, these joined, and dx.
pub(crate) fn gradients(
    stored: DType,
    Gradients {
        x,
        dy,
        partials,
        sums,
        dx,
    }: Gradients,
    norm: Norm,
    extents: Extents,
) -> [Launch; 3] {
    let [groups, rows, channels] = sizes(extents);
    let Norm {
        mean,
        variance,
        gain,
        eps,
        ..
    } = norm;
    let runs = extents.groups * extents.rows.div_ceil(RUN);
    [
        channel_norm_sums::call(stored, x, mean, dy, partials, rows, channels)
            .over_columns(extents.channels, runs),
        join_channel_norm_sums::call(
            DType::F32,
            partials,
            variance,
            sums,
            groups,
            rows,
            channels,
            eps,
        )
        .a_warp_each(extents.groups * extents.channels),
        channel_norm_grad::call(
            stored, x, mean, variance, gain, sums, dy, dx, groups, rows, channels, eps,
        )
        .over_elements(extents.groups * extents.rows * extents.channels),
    ]
}

/// Merges the statistics of further rows; `weights` are their share s of all rows, and s · (1 − s).
pub(crate) fn merge(
    mean: Pointer,
    variance: Pointer,
    part: Pointer,
    channels: usize,
    [share, spread]: [f32; 2],
) -> Launch {
    let n = channels as u64;
    merge_channel_statistics::call(DType::F32, mean, variance, part, n, share, spread)
        .over_elements(channels)
}

/// Moves `n` values towards the next ones.
pub(crate) fn average(
    value: Pointer,
    next: Pointer,
    n: usize,
    momentum: f32,
    scale: f32,
) -> Launch {
    moving_average::call(DType::F32, value, next, n as u64, momentum, scale).over_elements(n)
}
