//! Cuts: layers divided into parts.

use std::ops::Range;

/// Whether these parts are a cut of `layers` layers: in order, without gaps, and none empty.
pub(crate) fn is_cut<'a>(parts: impl IntoIterator<Item = &'a Range<usize>>, layers: usize) -> bool {
    let mut end = 0;
    let mut follows = |part: &Range<usize>| {
        let start = std::mem::replace(&mut end, part.end);
        part.start == start && !part.is_empty()
    };
    parts.into_iter().all(&mut follows) && end == layers
}
