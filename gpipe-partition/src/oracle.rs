//! A monotone cost of runs of layers: every part is asked for the same cost.

use std::ops::Range;

use crate::search::{furthest, least_bottleneck, pack};
use crate::{Error, Result};

/// Rounds of bisection that are enough for every `u64`.
pub(crate) const ROUNDS: u32 = 64;

/// Sums of the costs before each layer.
pub(crate) struct Prefix(Vec<u64>);

impl Prefix {
    pub(crate) fn new(costs: &[u64]) -> Result<Self> {
        let mut sums = Vec::with_capacity(costs.len() + 1);
        let mut sum = 0_u64;
        sums.push(sum);
        for (layer, &cost) in costs.iter().enumerate() {
            sum = sum.checked_add(cost).ok_or(Error::Overflow {
                layer,
                limit: u64::MAX as f64,
            })?;
            sums.push(sum);
        }
        Ok(Self(sums))
    }

    pub(crate) fn cost(&self, range: Range<usize>) -> u64 {
        self.0[range.end] - self.0[range.start]
    }
}

/// The least bottleneck of any cut into `parts` parts, of which there are 1 to `layers`.
pub(crate) fn bottleneck(
    layers: usize,
    parts: usize,
    cost: impl Fn(Range<usize>) -> Option<u64>,
) -> Result<u64> {
    let oracle = Oracle { cost: &cost };
    let most = oracle.singles(layers)?.into_iter().max().unwrap_or(0);
    oracle.bottleneck(0..layers, parts, most)
}

/// A monotone cost of runs, and the searches that only need it to be monotone.
pub(crate) struct Oracle<'a, F> {
    pub(crate) cost: &'a F,
}

impl<F: Fn(Range<usize>) -> Option<u64>> Oracle<'_, F> {
    /// What each layer costs alone.
    pub(crate) fn singles(&self, layers: usize) -> Result<Vec<u64>> {
        (0..layers)
            .map(|layer| (self.cost)(layer..layer + 1).ok_or(Error::LayerDoesNotFit { layer }))
            .collect()
    }

    /// The cost of a run that must fit because a longer one did.
    pub(crate) fn known(&self, range: Range<usize>) -> Result<u64> {
        let (start, end) = (range.start, range.end);
        (self.cost)(range).ok_or(Error::NotMonotone { start, end })
    }

    fn within(&self, range: Range<usize>, limit: u64) -> bool {
        (self.cost)(range).is_some_and(|cost| cost <= limit)
    }

    /// The furthest end up to `most` at which a run from `start` stays within the limit, taking it
    /// for granted that one layer does.
    pub(crate) fn furthest(&self, start: usize, most: usize, limit: u64) -> usize {
        furthest(start, most, |end| self.within(start..end, limit)).unwrap_or(start + 1)
    }

    /// The earliest start from `least` at which a run to `end` stays within the limit, taking it for
    /// granted that one layer does.
    pub(crate) fn earliest(&self, end: usize, least: usize, limit: u64) -> usize {
        let fits = |length: usize| self.within(end - length..end, limit);
        end - furthest(0, end - least, fits).unwrap_or(1)
    }

    /// The least limit within which `layers` can be cut into `parts`, given what the most expensive
    /// layer costs alone.
    pub(crate) fn bottleneck(&self, layers: Range<usize>, parts: usize, most: u64) -> Result<u64> {
        // No part costs less than its most expensive layer, which is often all there is to it.
        if pack(layers.clone(), parts, |_, run| self.within(run, most)).is_some() {
            return Ok(most);
        }
        let cost = |_: usize, run| (self.cost)(run);
        match least_bottleneck(layers.clone(), parts, most, ROUNDS, cost) {
            Some((_, least)) => Ok(least),
            None => Err(Error::DoesNotFit {
                parts,
                needed: self.fewest(layers),
            }),
        }
    }

    /// How many parts are needed for every part to fit at all.
    fn fewest(&self, layers: Range<usize>) -> usize {
        let mut start = layers.start;
        let mut parts = 0;
        while start < layers.end {
            start = self.furthest(start, layers.end, u64::MAX);
            parts += 1;
        }
        parts
    }
}
