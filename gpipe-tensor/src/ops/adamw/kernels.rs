//! The CUDA kernels of AdamW: entry points, parameters and grids.

use super::factors::Factors;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::cuda::table::Table;

entries! {
    adamw<T>(
        value: BothF32, copy: Out, grad: InF32, first: BothF32, second: BothF32, n: U64,
        grad_scale: F32, keep: F32, first_share: F32, beta2: F32, second_share: F32,
        step_size: F32, root_correction: F32, eps: F32,
    );
    adamw_rows<T>(
        table: InU64, rows: U32, grad_scale: F32, keep: F32, first_share: F32, beta2: F32,
        second_share: F32, step_size: F32, root_correction: F32, eps: F32,
    );
}

/// One step on values in single precision; `copy`, unless null, gets them in the stored type.
pub(crate) fn adamw(
    stored: DType,
    value: Pointer,
    copy: Pointer,
    grad: Pointer,
    [first, second]: [Pointer; 2],
    n: usize,
    by: &Factors,
) -> Launch {
    adamw::call(
        stored,
        value,
        copy,
        grad,
        first,
        second,
        n as u64,
        by.grad_scale,
        by.keep,
        by.first_share,
        by.beta2,
        by.second_share,
        by.step_size,
        by.root_correction,
        by.eps,
    )
    .over_elements(n)
}

/// [`adamw`] of every row: value, copy, gradient and both states. `at` is the address of the table.
pub(crate) fn adamw_rows(stored: DType, table: &Table, at: Pointer, by: &Factors) -> Launch {
    // Value, gradient and both moments are read, all but the gradient written, and the copy.
    let bytes = 7 * 4
        + if stored == DType::F32 {
            0
        } else {
            stored.bytes()
        };
    adamw_rows::call(
        stored,
        at,
        table.rows(),
        by.grad_scale,
        by.keep,
        by.first_share,
        by.beta2,
        by.second_share,
        by.step_size,
        by.root_correction,
        by.eps,
    )
    .blocks_with(table.blocks(), 0)
    .with_more_bytes(bytes * table.elements())
}
