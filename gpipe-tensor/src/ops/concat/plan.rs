//! Columns that are copied from one matrix to another.

/// The same rows of two matrices, and `count` columns of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub rows: usize,
    pub count: usize,
    /// Width of the matrix that is read, and its first column.
    pub from: [usize; 2],
    /// Width of the matrix that is written, and its first column.
    pub to: [usize; 2],
}
