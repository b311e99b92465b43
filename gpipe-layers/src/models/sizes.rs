//! The ranges of the sizes of a model.

use std::ops::RangeInclusive;

use crate::{Error, Result};

/// Extents of parameters: products of a few fit 64 bits.
pub const EXTENT: RangeInclusive<usize> = 1..=u32::MAX as usize;

/// The most blocks or hidden layers: all are made before anything can be said of their memory.
pub const MOST_BLOCKS: usize = 10_000;

/// An error of the first size that is outside of its range.
pub fn check(family: &str, sizes: &[(&str, usize, RangeInclusive<usize>)]) -> Result<()> {
    for (what, size, range) in sizes {
        if !range.contains(size) {
            return Err(Error::Config(format!(
                "{family}: {what} is {size}: use a number from {} to {}",
                range.start(),
                range.end()
            )));
        }
    }
    Ok(())
}
