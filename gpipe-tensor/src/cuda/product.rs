//! The description of a product of matrices on a GPU: sizes, layouts and types.

use cudarc::cublas::sys::cublasOperation_t;

use crate::dtype::DType;

/// Row-major matrices, item after item: c = a·b, or c += a·b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Rows of c.
    pub m: usize,
    /// Columns of c.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Whether a lies in memory as (k, m).
    pub a_transposed: bool,
    /// Whether b lies in memory as (n, k).
    pub b_transposed: bool,
    /// Whether the product is added to c.
    pub accumulate: bool,
    /// Number of products.
    pub items: usize,
    /// The type of a and b.
    pub stored: DType,
    /// The type of c: that of a and b, or single precision, in which sums are taken in any case.
    pub result: DType,
}

/// How the library reads a matrix.
pub(super) fn form(transposed: bool) -> cublasOperation_t {
    match transposed {
        false => cublasOperation_t::CUBLAS_OP_N,
        true => cublasOperation_t::CUBLAS_OP_T,
    }
}
