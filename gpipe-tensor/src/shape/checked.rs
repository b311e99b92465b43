//! Sizes of a shape, checked for overflow.

use super::Shape;
use crate::error::{Error, Result};

impl Shape {
    /// The number of elements.
    ///
    /// # Errors
    /// [`Error::Size`] if the product does not fit a `usize`.
    pub fn elements(&self) -> Result<usize> {
        // An extent of zero anywhere makes the product zero, whatever overflows before it.
        if self.0.contains(&0) {
            return Ok(0);
        }
        self.0
            .iter()
            .try_fold(1usize, |product, &extent| product.checked_mul(extent))
            .ok_or_else(|| Error::Size {
                op: "shape",
                shape: self.clone(),
            })
    }

    /// The tensor seen as a matrix: (product of all extents but the innermost, innermost).
    ///
    /// # Errors
    /// [`Error::Size`] if the product does not fit a `usize`.
    pub fn matrix(&self) -> Result<(usize, usize)> {
        let columns = self.last();
        let leading = Self(self.0[..self.0.len().saturating_sub(1)].into());
        Ok((leading.elements()?, columns))
    }
}
