//! The description of a product of matrices on a GPU: sizes, layouts and types.

use cudarc::cublas::sys::cublasOperation_t;
use smallvec::SmallVec;

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

/// From how many elements on it is worth a second call that a row has some beyond the last 16 bytes.
const LONG: usize = 1024;

/// The most rows of such a call. To one of the calls for 65,536 rows of 50,257 logits, cuBLAS 13.1 said on an H200 that it had
/// failed (`CUBLAS_STATUS_INTERNAL_ERROR`); with half as many rows all of them are known to work.
const MOST_ROWS: usize = 1 << 15;

/// A part of a product, and where its matrices begin in those of the whole, in elements.
pub(super) type Part = (Product, [usize; 3]);

impl Product {
    /// Products that together are this one, in their order: cuBLAS takes other kernels, several times slower, where a row of a
    /// matrix has elements beyond its last 16 bytes (a vocabulary of 50,257 words), even if all rows begin at a multiple of
    /// 16 bytes. Those elements are multiplied by themselves.
    pub fn parts(self) -> SmallVec<[Part; 2]> {
        self.parts_of_rows(MOST_ROWS)
    }

    fn parts_of_rows(self, most_rows: usize) -> SmallVec<[Part; 2]> {
        let mut parts = SmallVec::from_elem((self, [0; 3]), 1);
        let row = 16 / self.stored.bytes();
        let [a, b, c] = self.row_strides();
        if self.items != 1 || [a, b, c].iter().any(|stride| !stride.is_multiple_of(row)) {
            return parts;
        }
        let split = |extent: usize| {
            let rest = extent % row;
            (extent >= LONG && rest > 0).then_some((extent - rest, rest))
        };
        if let Some((most, rest)) = split(self.n) {
            let of_b = if self.b_transposed { most * b } else { most };
            parts = both(parts, |(part, [at_a, at_b, at_c])| {
                let first = part.narrowed([part.m, most, part.k]);
                let last = part.narrowed([part.m, rest, part.k]);
                [
                    (first, [at_a, at_b, at_c]),
                    (last, [at_a, at_b + of_b, at_c + most]),
                ]
            });
        }
        if let Some((most, rest)) = split(self.m).filter(|_| self.a_transposed) {
            parts = both(parts, |(part, [at_a, at_b, at_c])| {
                let first = part.narrowed([most, part.n, part.k]);
                let last = part.narrowed([rest, part.n, part.k]);
                [
                    (first, [at_a, at_b, at_c]),
                    (last, [at_a + most, at_b, at_c + most * c]),
                ]
            });
        }
        if let Some((most, rest)) =
            split(self.k).filter(|_| !self.a_transposed || self.b_transposed)
        {
            let of_a = if self.a_transposed { most * a } else { most };
            let of_b = if self.b_transposed { most } else { most * b };
            // The few terms first: their sum is rounded to the type of c before the others are added.
            parts = both(parts, |(part, [at_a, at_b, at_c])| {
                let first = part.narrowed([part.m, part.n, rest]);
                let last = Self {
                    accumulate: true,
                    ..part.narrowed([part.m, part.n, most])
                };
                [
                    (first, [at_a + of_a, at_b + of_b, at_c]),
                    (last, [at_a, at_b, at_c]),
                ]
            });
        }
        if parts.len() > 1 {
            parts = parts
                .into_iter()
                .flat_map(|part| cut_rows(part, most_rows))
                .collect();
        }
        parts
    }

    /// A product of these rows, columns and terms of the same matrices.
    fn narrowed(self, [m, n, k]: [usize; 3]) -> Self {
        let strides = self.row_strides();
        let narrow = Self {
            m,
            n,
            k,
            pads: [0; 3],
            ..self
        };
        let least = narrow.row_strides();
        let pads = [0, 1, 2].map(|place| strides[place] - least[place]);
        Self { pads, ..narrow }
    }
}

/// Cuts a part into pieces of at most `most` rows of a. The rows of a transposed a are the terms of the sums, so their pieces are
/// added up in c; that is done in single precision alone, since each addition rounds to the type of c.
fn cut_rows((part, [at_a, at_b, at_c]): Part, most: usize) -> SmallVec<[Part; 2]> {
    let [a, b, c] = part.row_strides();
    let rows = if part.a_transposed { part.k } else { part.m };
    if part.a_transposed && part.result != DType::F32 {
        return SmallVec::from_elem((part, [at_a, at_b, at_c]), 1);
    }
    let pieces = (0..rows).step_by(most).map(|first| {
        let rows = most.min(rows - first);
        if !part.a_transposed {
            let piece = part.narrowed([rows, part.n, part.k]);
            return (piece, [at_a + first * a, at_b, at_c + first * c]);
        }
        let piece = Product {
            accumulate: part.accumulate || first > 0,
            ..part.narrowed([part.m, part.n, rows])
        };
        let of_b = if part.b_transposed { first } else { first * b };
        (piece, [at_a + first * a, at_b + of_b, at_c])
    });
    pieces.collect()
}

/// Two parts for each.
fn both(parts: SmallVec<[Part; 2]>, split: impl Fn(Part) -> [Part; 2]) -> SmallVec<[Part; 2]> {
    parts.into_iter().flat_map(split).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The product of matrices of small whole numbers, which sums of any order give exactly.
    fn multiplied(parts: &[Part], [a, b]: [&[f32]; 2], c: &mut [f32]) {
        for (part, [at_a, at_b, at_c]) in parts {
            let [of_a, of_b, of_c] = part.row_strides();
            for i in 0..part.m {
                for j in 0..part.n {
                    let terms = (0..part.k).map(|l| {
                        let a_at = if part.a_transposed {
                            l * of_a + i
                        } else {
                            i * of_a + l
                        };
                        let b_at = if part.b_transposed {
                            j * of_b + l
                        } else {
                            l * of_b + j
                        };
                        a[at_a + a_at] * b[at_b + b_at]
                    });
                    let sum: f32 = terms.sum();
                    let to = &mut c[at_c + i * of_c + j];
                    *to = sum + if part.accumulate { *to } else { 0.0 };
                }
            }
        }
    }

    #[test]
    fn parts_are_the_whole() {
        let forms = [(false, false), (false, true), (true, false), (true, true)];
        let extents = [
            [3, 1031, 5],
            [1027, 4, 9],
            [2, 8, 1029],
            [1025, 1026, 3],
            [4, 1025, 1027],
        ];
        for ((a_transposed, b_transposed), [m, n, k]) in forms
            .into_iter()
            .flat_map(|form| extents.map(|extents| (form, extents)))
        {
            let tight = Product {
                m,
                n,
                k,
                a_transposed,
                b_transposed,
                accumulate: false,
                items: 1,
                pads: [0; 3],
                stored: DType::BF16,
                result: DType::F32,
            };
            let pads = tight
                .row_strides()
                .map(|width| width.next_multiple_of(8) - width);
            let whole = Product { pads, ..tight };
            let [of_a, of_b, of_c] = whole.row_strides();
            let numbers = |rows: usize, stride: usize| {
                let numbers = (0..rows * stride).map(|i| (i * 7 % 5) as f32 - 2.0);
                numbers.collect::<Vec<f32>>()
            };
            let a = numbers(if a_transposed { k } else { m }, of_a);
            let b = numbers(if b_transposed { n } else { k }, of_b);
            for accumulate in [false, true] {
                let whole = Product {
                    accumulate,
                    ..whole
                };
                let parts = whole.parts();
                let mut of_whole = numbers(m, of_c);
                multiplied(&[(whole, [0; 3])], [&a, &b], &mut of_whole);
                for most_rows in [MOST_ROWS, 3] {
                    let mut of_parts = numbers(m, of_c);
                    let parts = whole.parts_of_rows(most_rows);
                    multiplied(&parts, [&a, &b], &mut of_parts);
                    assert_eq!(of_parts, of_whole, "{whole:?}");
                    let rows = |part: &Product| if a_transposed { part.k } else { part.m };
                    let fit = parts.iter().all(|(part, _)| rows(part) <= most_rows);
                    assert!(fit || parts.len() == 1, "{parts:?}");
                }
                let rows_of = |part: &Product| {
                    let a = if a_transposed { part.m } else { part.k };
                    [a, if b_transposed { part.k } else { part.n }, part.n]
                };
                let odd =
                    |part: &Product| rows_of(part).iter().any(|&row| row >= LONG && row % 8 > 0);
                assert!(!parts.iter().any(|(part, _)| odd(part)), "{parts:?}");
                assert_eq!(parts.len() > 1, odd(&whole));
                // Where rows begin at odd places there is nothing to be had.
                let odd_rows = Product {
                    accumulate,
                    ..tight
                };
                if tight.row_strides().iter().any(|stride| stride % 8 > 0) {
                    assert_eq!(odd_rows.parts().len(), 1);
                }
            }
        }
    }
}
