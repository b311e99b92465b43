//! The description of a product of matrices on a GPU: sizes, layouts and types.

use cudarc::cublas::sys::cublasOperation_t;

use super::entry::Pointer;
use crate::dtype::DType;

/// Row-major matrices, item after item: c = a·b, or c += a·b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Elements between the rows of a, b and c, as they lie in memory.
    pub pads: [usize; 3],
    /// The type of a and b.
    pub stored: DType,
    /// The type of c: that of a and b, or single precision, in which sums are taken in any case.
    pub result: DType,
}

impl Product {
    /// Elements from row to row of a, b and c, as they lie in memory.
    pub fn row_strides(&self) -> [usize; 3] {
        let a = if self.a_transposed { self.m } else { self.k };
        let b = if self.b_transposed { self.k } else { self.n };
        let [of_a, of_b, of_c] = self.pads;
        [a + of_a, b + of_b, self.n + of_c]
    }
}

/// What is added to a product that does not lie in c, in the type of c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    /// A row, added to each.
    pub bias: Option<Pointer>,
    /// As many rows as the product has, one behind the other.
    pub onto: Option<Pointer>,
}

impl Added {
    pub const NOTHING: Self = Self {
        bias: None,
        onto: None,
    };
}

/// How the library reads a matrix.
pub(super) fn form(transposed: bool) -> cublasOperation_t {
    match transposed {
        false => cublasOperation_t::CUBLAS_OP_N,
        true => cublasOperation_t::CUBLAS_OP_T,
    }
}
