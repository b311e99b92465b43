//! The CUDA kernels of the cross-entropy: entry points, parameters and grids.

pub(crate) use super::cpu::Wanted;
use crate::DType;
use crate::cuda::entry::{Call, Launch, Pointer, THREADS, WARP, entries};

entries! {
    cross_entropy<T>(
        logits: Both, targets: InU32, losses: OutF64, width: U64, row_stride: U64, divisor: F64,
        smoothing: F64, elsewhere: F64, keeps: U32,
    );
    weighted_cross_entropy<T>(
        logits: Both, targets: InU32, weights: InF32, losses: OutF64, width: U64,
        row_stride: U64, divisor: F64, smoothing: F64, elsewhere: F64, keeps: U32,
    );
    cross_entropy_loss<T>(
        logits: In, targets: InU32, losses: OutF64, width: U64, row_stride: U64, smoothing: F64,
        elsewhere: F64,
    );
    correct<T>(logits: In, targets: InU32, hits: OutU32, width: U64, row_stride: U64);
}

/// Rows of fewer bytes are read twice: as many blocks as the device runs at a time find them in its caches.
const LONG: usize = 32 << 10;

/// Bytes of shared memory in which a block keeps a row of `width` elements, so that it is read once; none for short rows and
/// where a block may not ask for as much. Bits do not depend on it.
fn kept(stored: DType, width: usize, most_shared: usize) -> Option<usize> {
    let bytes = (stored.bytes() * width).next_multiple_of(16);
    (LONG..=most_shared.saturating_sub(SCRATCH))
        .contains(&bytes)
        .then_some(bytes)
}

/// Bytes of shared memory before a row that is kept: `SCRATCH` of the kernels.
const SCRATCH: usize = 8 * (THREADS / WARP) as usize;

/// A block for each row, with memory for it if it is kept.
fn rows_of(call: Call, [rows, width, _]: [usize; 3], kept: Option<usize>) -> Launch {
    let launch = call.a_block_each(rows);
    match kept {
        Some(bytes) => launch.with_more_shared(bytes),
        None => {
            let read_again = launch.form.stored.bytes() * rows * width;
            launch.with_more_bytes(read_again)
        }
    }
}

/// Whether launches of the kernel of this name may ask for more than the 48 KiB of shared memory that every one may.
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "modules of kernels ask it")
)]
pub(crate) fn keeps_rows(name: &str) -> bool {
    [&cross_entropy::ENTRY, &weighted_cross_entropy::ENTRY]
        .iter()
        .any(|entry| entry.name == name)
}

/// Puts the gradient in the place of the logits, and gives one loss a row, yet to be divided. Sizes are rows, elements of a
/// row, and elements from row to row; a block may ask for `most_shared` bytes of shared memory.
pub(crate) fn gradient(
    stored: DType,
    [logits, targets, losses]: [Pointer; 3],
    sizes: [usize; 3],
    wanted: Wanted,
    divisor: f64,
    most_shared: usize,
) -> Launch {
    let [_, width, row_stride] = sizes;
    let kept = kept(stored, width, most_shared);
    let call = cross_entropy::call(
        stored,
        logits,
        targets,
        losses,
        width as u64,
        row_stride as u64,
        divisor,
        wanted.smoothing,
        wanted.elsewhere,
        kept.is_some().into(),
    );
    rows_of(call, sizes, kept)
}

/// [`gradient`] with a weight for each row, of single precision.
pub(crate) fn weighted_gradient(
    stored: DType,
    [logits, targets, weights, losses]: [Pointer; 4],
    sizes: [usize; 3],
    wanted: Wanted,
    divisor: f64,
    most_shared: usize,
) -> Launch {
    let [_, width, row_stride] = sizes;
    let kept = kept(stored, width, most_shared);
    let call = weighted_cross_entropy::call(
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
        kept.is_some().into(),
    );
    rows_of(call, sizes, kept)
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
