//! A flow from another rank.

use crate::executor::tag::Tag;
use crate::executor::wire::Reader;

/// A flow that has arrived, and is not read.
pub(super) struct Flow {
    pub from: usize,
    pub tag: Tag,
    pub message: Reader,
    pub bytes: u64,
}
