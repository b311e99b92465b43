//! The CUDA kernels of the cross-entropy: entry points, parameters and grids.

pub(crate) use super::cpu::Wanted;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    cross_entropy<T>(
        logits: Both, targets: InU32, losses: OutF64, width: U64, row_stride: U64, divisor: F64,
        smoothing: F64, elsewhere: F64,
    );
    weighted_cross_entropy<T>(
        logits: Both, targets: InU32, weights: InF32, losses: OutF64, width: U64,
        row_stride: U64, divisor: F64, smoothing: F64, elsewhere: F64,
    );
    cross_entropy_loss<T>(
        logits: In, targets: InU32, losses: OutF64, width: U64, row_stride: U64, smoothing: F64,
        elsewhere: F64,
    );
    correct<T>(logits: In, targets: InU32, hits: OutU32, width: U64, row_stride: U64);
}

/// Puts the gradient in the place of the logits, and gives one loss a row, yet to be divided. Sizes are rows, elements of a
/// row, and elements from row to row.
pub(crate) fn gradient(
    stored: DType,
    [logits, targets, losses]: [Pointer; 3],
    [rows, width, row_stride]: [usize; 3],
    wanted: Wanted,
    divisor: f64,
) -> Launch {
    cross_entropy::call(
        stored,
        logits,
        targets,
        losses,
        width as u64,
        row_stride as u64,
        divisor,
        wanted.smoothing,
        wanted.elsewhere,
    )
    .a_block_each(rows)
    .with_more_bytes(read_again(stored, rows, width))
}

/// Bytes of the second pass over the logits, for their gradient.
fn read_again(stored: DType, rows: usize, width: usize) -> usize {
    stored.bytes() * rows * width
}

/// [`gradient`] with a weight for each row, of single precision.
pub(crate) fn weighted_gradient(
    stored: DType,
    [logits, targets, weights, losses]: [Pointer; 4],
    [rows, width, row_stride]: [usize; 3],
    wanted: Wanted,
    divisor: f64,
) -> Launch {
    weighted_cross_entropy::call(
        stored,
        logits,
        targets,
        weights,
        losses,
        width as u64,
        row_stride as u64,
        divisor,
        wanted.smoothing,
        wanted.elsewhere,
    )
    .a_block_each(rows)
    .with_more_bytes(read_again(stored, rows, width))
}

/// One loss a row, yet to be divided.
pub(crate) fn losses(
    stored: DType,
    [logits, targets, losses]: [Pointer; 3],
    [rows, width, row_stride]: [usize; 3],
    wanted: Wanted,
) -> Launch {
    cross_entropy_loss::call(
        stored,
        logits,
        targets,
        losses,
        width as u64,
        row_stride as u64,
        wanted.smoothing,
        wanted.elsewhere,
    )
    .a_block_each(rows)
}

/// 1 for each row whose largest logit is where the target is, else 0.
pub(crate) fn correct(
    stored: DType,
    logits: Pointer,
    targets: Pointer,
    hits: Pointer,
    [rows, width, row_stride]: [usize; 3],
) -> Launch {
    let sizes = [width, row_stride].map(|size| size as u64);
    correct::call(stored, logits, targets, hits, sizes[0], sizes[1]).a_block_each(rows)
}
