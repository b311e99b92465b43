//! The CUDA kernel of copies of columns: entry point, parameters and grid.

use super::plan::Columns;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    copy_columns<T>(
        x: In, y: Out, rows: U64, count: U64, x_width: U64, x_start: U64, y_width: U64, y_start: U64,
    );
}

/// Columns of x copied into y.
pub(crate) fn copy(stored: DType, x: Pointer, y: Pointer, columns: Columns) -> Launch {
    let Columns {
        rows,
        count,
        from,
        to,
    } = columns;
    let [[x_width, x_start], [y_width, y_start]] = [from, to].map(|side| side.map(|n| n as u64));
    copy_columns::call(
        stored,
        x,
        y,
        rows as u64,
        count as u64,
        x_width,
        x_start,
        y_width,
        y_start,
    )
    .over_elements(rows * count)
}
