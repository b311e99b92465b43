//! A cut of a list of layers into contiguous, non-empty parts.

use std::fmt;
use std::ops::Range;

use crate::error::check_counts;
use crate::{Error, Result};

/// Which layers each stage holds: contiguous runs in order, none empty, that cover every layer once.
///
/// Displayed by the sizes of its parts, as `3,3,4,2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The layer after the last of each part: strictly ascending, from 1 or more.
    ends: Vec<usize>,
}

impl Partition {
    /// The caller promises that `ends` is not empty and ascends strictly from 1 or more.
    pub(crate) fn from_ends(ends: Vec<usize>) -> Self {
        debug_assert!(ends.first().is_some_and(|&first| first > 0));
        debug_assert!(ends.is_sorted_by(|a, b| a < b));
        Self { ends }
    }

    /// How many stages there are, at least 1.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.ends.len()
    }

    /// How many layers were cut, at least as many as there are parts.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The layers of each stage, in order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.ends.iter().enumerate().map(|(part, &end)| {
            let start = if part == 0 { 0 } else { self.ends[part - 1] };
            start..end
        })
    }

    /// The layers of one stage, or `None` if there are fewer stages.
    #[must_use]
    pub fn range(&self, part: usize) -> Option<Range<usize>> {
        let end = *self.ends.get(part)?;
        Some(part.checked_sub(1).map_or(0, |before| self.ends[before])..end)
    }

    /// How many layers each stage holds.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        self.ranges().map(|range| range.len()).collect()
    }

    /// Which stage holds a layer, or `None` past the last layer.
    #[must_use]
    pub fn part_of(&self, layer: usize) -> Option<usize> {
        (layer < self.layers()).then(|| self.ends.partition_point(|&end| end <= layer))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&join(&self.sizes()))
    }
}

/// Cuts `layers` layers into parts of exactly these sizes.
///
/// # Errors
/// If there are no sizes, if one is 0, or if they do not add up to `layers`.
pub fn explicit(sizes: &[usize], layers: usize) -> Result<Partition> {
    if let Some(part) = sizes.iter().position(|&size| size == 0) {
        return Err(Error::ZeroSize { part });
    }
    let sum = sizes
        .iter()
        .try_fold(0_usize, |sum, &size| sum.checked_add(size));
    if !sizes.is_empty() && sum != Some(layers) {
        return Err(Error::SizeSum {
            sizes: join(sizes),
            sum: sum.unwrap_or(usize::MAX),
            layers,
        });
    }
    check_counts(layers, sizes.len())?;
    let ends = sizes.iter().scan(0, |end, &size| {
        *end += size;
        Some(*end)
    });
    Ok(Partition::from_ends(ends.collect()))
}

/// Sizes as a user writes them.
pub(crate) fn join(sizes: &[usize]) -> String {
    let words: Vec<String> = sizes.iter().map(usize::to_string).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_sizes_become_runs() {
        let cut = explicit(&[3, 3, 4, 2], 12).unwrap();
        assert_eq!(
            cut.ranges().collect::<Vec<_>>(),
            [0..3, 3..6, 6..10, 10..12]
        );
        assert_eq!((cut.parts(), cut.layers()), (4, 12));
        assert_eq!(cut.to_string(), "3,3,4,2");
        assert_eq!(cut.range(2), Some(6..10));
        assert_eq!(cut.range(4), None);
    }

    #[test]
    fn every_layer_knows_its_part() {
        let cut = explicit(&[1, 2, 1], 4).unwrap();
        let parts: Vec<_> = (0..5).map(|layer| cut.part_of(layer)).collect();
        assert_eq!(parts, [Some(0), Some(1), Some(1), Some(2), None]);
    }

    #[test]
    fn sizes_that_do_not_cover_the_model_are_refused() {
        let message = |sizes: &[usize], layers| explicit(sizes, layers).unwrap_err().to_string();
        assert_eq!(
            message(&[3, 3], 7),
            "the sizes 3,3 add up to 6 layers but there are 7: make them add up to 7"
        );
        assert_eq!(
            message(&[7, 0], 7),
            "stage 1 has size 0: every stage needs at least 1 layer"
        );
        assert_eq!(message(&[], 7), "0 stages: use at least 1");
        assert_eq!(explicit(&[], 0), Err(Error::NoParts));
        for layers in [1, usize::MAX] {
            assert!(matches!(
                explicit(&[usize::MAX, 2], layers),
                Err(Error::SizeSum {
                    sum: usize::MAX,
                    ..
                })
            ));
        }
    }
}
