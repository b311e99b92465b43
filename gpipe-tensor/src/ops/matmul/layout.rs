//! Which operand of a product is read transposed.

use super::matrix::{Gemm, Matrix};

/// Which operand of a product is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// a·b
    Nn,
    /// a·bᵀ
    Nt,
    /// aᵀ·b
    Tn,
}

impl Layout {
    /// The product of an operand of (rows, columns) `a` and one of `b`, if they fit.
    pub(super) fn product(self, a: (usize, usize), b: (usize, usize)) -> Option<Gemm> {
        let ((m, k), (inner, n)) = match self {
            Self::Nn => (a, b),
            Self::Nt => (a, (b.1, b.0)),
            Self::Tn => ((a.1, a.0), b),
        };
        (k == inner).then(|| Gemm::new(m, n, k))
    }

    /// The operands as they enter the product, from their rows.
    pub(super) fn operands<'a>(
        self,
        (a, a_columns): (&'a [f32], usize),
        (b, b_columns): (&'a [f32], usize),
    ) -> (Matrix<'a>, Matrix<'a>) {
        let (a, b) = (Matrix::new(a, a_columns), Matrix::new(b, b_columns));
        match self {
            Self::Nn => (a, b),
            Self::Nt => (a, b.transposed()),
            Self::Tn => (a.transposed(), b),
        }
    }
}
