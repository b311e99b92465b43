//! The extents of a tensor, outermost first.

mod checked;

use smallvec::SmallVec;

/// The extents of a row-major tensor, outermost first; no extents is a scalar.
///
/// Rows of the innermost extent may lie apart in memory ([`ops::padded`](crate::ops::padded)), which is no part of the
/// comparison of shapes.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    extents: SmallVec<[usize; 4]>,
    /// Elements of memory behind each row that belong to none.
    pad: usize,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.extents == other.extents
    }
}

impl Eq for Shape {}

impl std::hash::Hash for Shape {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.extents.hash(state);
    }
}

impl Shape {
    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.extents
    }

    /// The number of extents.
    pub fn rank(&self) -> usize {
        self.extents.len()
    }

    /// The outermost extent, 1 for a scalar: what micro-batches are cut along.
    pub fn rows(&self) -> usize {
        self.extents.first().copied().unwrap_or(1)
    }

    /// The innermost extent, 1 for a scalar.
    pub fn last(&self) -> usize {
        self.extents.last().copied().unwrap_or(1)
    }

    /// The same shape with another innermost extent.
    pub fn with_last(&self, extent: usize) -> Self {
        let mut extents = self.extents.clone();
        match extents.last_mut() {
            Some(last) => *last = extent,
            None => extents.push(extent),
        }
        Self { extents, pad: 0 }
    }

    /// The same shape with another outermost extent.
    pub fn with_rows(&self, extent: usize) -> Self {
        let mut shape = self.clone();
        match shape.extents.first_mut() {
            Some(first) => *first = extent,
            None => shape.extents.push(extent),
        }
        shape
    }

    /// Elements of memory between the rows of the innermost extent.
    #[cfg(feature = "cuda")]
    pub(crate) fn pad(&self) -> usize {
        self.pad
    }

    /// Elements from the beginning of a row of the innermost extent to that of the next.
    pub(crate) fn row_stride(&self) -> usize {
        self.last().saturating_add(self.pad)
    }

    /// The same with rows that begin at multiples of this many elements, unless it has only one extent.
    #[must_use]
    pub(crate) fn padded(&self, multiple: usize) -> Self {
        let last = self.last();
        let stride = last.checked_next_multiple_of(multiple).unwrap_or(last);
        let pad = if self.rank() > 1 { stride - last } else { 0 };
        Self {
            pad,
            ..self.clone()
        }
    }

    /// The same with as much room behind each row as `other` has.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub(crate) fn with_row_stride_of(self, other: &Self) -> Self {
        Self {
            pad: other.pad,
            ..self
        }
    }

    /// The same with rows that lie one behind the other.
    #[must_use]
    pub(crate) fn dense(self) -> Self {
        Self { pad: 0, ..self }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, extent) in self.extents.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{extent}")?;
        }
        f.write_str("]")
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self {
            extents: dims.into(),
            pad: 0,
        }
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        dims.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_shape_is_seen_as_rows_or_as_a_matrix() {
        let shape = Shape::from([2, 3, 5]);
        assert_eq!((shape.rank(), shape.rows(), shape.last()), (3, 2, 5));
        assert_eq!(shape.elements().unwrap(), 30);
        assert_eq!(shape.matrix().unwrap(), (6, 5));
        assert_eq!(shape.with_last(7).dims(), [2, 3, 7]);
        assert_eq!(shape.with_rows(7).dims(), [7, 3, 5]);
        assert_eq!(shape.to_string(), "[2, 3, 5]");
    }

    #[test]
    fn rows_that_lie_apart_take_more_memory_and_are_as_many() {
        let shape = Shape::from([2, 3, 5]).padded(8);
        assert_eq!((shape.elements().unwrap(), shape.row_stride()), (30, 8));
        assert_eq!(shape.stored_elements().unwrap(), 48);
        assert_eq!(shape, Shape::from([2, 3, 5]));
        assert_eq!(shape.with_rows(1).stored_elements().unwrap(), 24);
        for dense in [shape.with_last(7), shape.clone().dense(), shape.padded(5)] {
            let elements = dense.elements().unwrap();
            assert_eq!(dense.stored_elements().unwrap(), elements, "{dense}");
        }
        assert_eq!(Shape::from([5]).padded(8).row_stride(), 5);
        assert_eq!(Shape::from([3, 0]).padded(8).row_stride(), 0);
        let huge = Shape::from([usize::MAX / 4, 3]).padded(8);
        assert!(huge.elements().is_ok());
        assert!(matches!(huge.stored_elements(), Err(Error::Size { .. })));
        assert_eq!(
            Shape::from([2, usize::MAX]).padded(8).row_stride(),
            usize::MAX
        );
    }

    #[test]
    fn a_scalar_is_one_row_of_one() {
        let scalar = Shape::default();
        assert_eq!((scalar.rank(), scalar.rows(), scalar.last()), (0, 1, 1));
        assert_eq!(scalar.elements().unwrap(), 1);
        assert_eq!(scalar.matrix().unwrap(), (1, 1));
        assert_eq!(scalar.with_last(4), scalar.with_rows(4));
        assert_eq!(scalar.to_string(), "[]");
    }

    #[test]
    fn extents_that_overflow_are_an_error_unless_one_is_zero() {
        let huge = Shape::from([usize::MAX, 2, 1]);
        assert!(matches!(huge.elements(), Err(Error::Size { .. })));
        assert!(matches!(huge.matrix(), Err(Error::Size { .. })));
        assert_eq!(Shape::from([usize::MAX, 2, 0]).elements().unwrap(), 0);
    }
}
