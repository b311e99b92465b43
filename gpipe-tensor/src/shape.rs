//! The extents of a tensor, outermost first.

mod checked;

use smallvec::SmallVec;

/// The extents of a row-major tensor, outermost first; no extents is a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of extents.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The outermost extent, 1 for a scalar: what micro-batches are cut along.
    pub fn rows(&self) -> usize {
        self.0.first().copied().unwrap_or(1)
    }

    /// The innermost extent, 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// The same shape with another innermost extent.
    pub fn with_last(&self, extent: usize) -> Self {
        let mut dims = self.0.clone();
        match dims.last_mut() {
            Some(last) => *last = extent,
            None => dims.push(extent),
        }
        Self(dims)
    }

    /// The same shape with another outermost extent.
    pub fn with_rows(&self, extent: usize) -> Self {
        let mut dims = self.0.clone();
        match dims.first_mut() {
            Some(first) => *first = extent,
            None => dims.push(extent),
        }
        Self(dims)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, extent) in self.0.iter().enumerate() {
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
        Self(dims.into())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.as_slice().into())
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
