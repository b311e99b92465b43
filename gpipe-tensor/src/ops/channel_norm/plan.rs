//! The extents of tensors whose channels are normalized.

use crate::{Error, Result, Shape};

/// The extents of a tensor whose channels are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub groups: usize,
    /// Rows of a group.
    pub rows: usize,
    pub channels: usize,
}

impl Extents {
    pub fn of(op: &'static str, x: &Shape, groups: usize) -> Result<Self> {
        let (rows, channels) = x.matrix()?;
        if groups == 0 || !rows.is_multiple_of(groups) {
            let expected = format!("rows in {groups} equal groups");
            return Err(Error::shape(op, expected, x));
        }
        Ok(Self {
            groups,
            rows: rows / groups,
            channels,
        })
    }
}
