//! Sizes of a shape, checked for overflow.

use super::Shape;
use crate::error::{Error, Result};

impl Shape {
    /// The number of elements.
    ///
    /// # Errors
    /// [`Error::Size`] if the product does not fit a `usize`.
    pub fn elements(&self) -> Result<usize> {
        self.product(self.dims())
    }

    /// The number of elements, and of those between their rows, which take memory too.
    ///
    /// # Errors
    /// [`Error::Size`] if it does not fit a `usize`.
    pub fn stored_elements(&self) -> Result<usize> {
        if self.pad == 0 {
            return self.elements();
        }
        self.matrix()?
            .0
            .checked_mul(self.row_stride())
            .ok_or_else(|| self.too_large())
    }

    /// The tensor seen as a matrix: (product of all extents but the innermost, innermost).
    ///
    /// # Errors
    /// [`Error::Size`] if the product does not fit a `usize`.
    pub fn matrix(&self) -> Result<(usize, usize)> {
        let leading = &self.dims()[..self.rank().saturating_sub(1)];
        Ok((self.product(leading)?, self.last()))
    }

    fn product(&self, extents: &[usize]) -> Result<usize> {
        // An extent of zero anywhere makes the product zero, whatever overflows before it.
        if extents.contains(&0) {
            return Ok(0);
        }
        extents
            .iter()
            .try_fold(1usize, |product, &extent| product.checked_mul(extent))
            .ok_or_else(|| self.too_large())
    }

    fn too_large(&self) -> Error {
        Error::Size {
            op: "shape",
            shape: self.clone(),
        }
    }
}
