//! The exact min-max cut.
//!
//! The classic argument: whether every part can stay within a limit is decided by packing
//! greedily, so the least limit is found by bisection, in `O(parts · log layers · log cost)` steps
//! and with no table. (Pınar and Aykanat, "Fast optimal load balancing algorithms for 1D
//! partitioning", 2004, compare such methods.)

use std::ops::Range;

use crate::error::check_counts;
use crate::placement::place;
use crate::{Error, Partition, Result};

/// The contiguous cut whose dearest part is cheapest.
///
/// Usually several cuts share that bottleneck; which one is returned is a function of the costs:
///
/// 1. A boundary that all of them share is settled, and the runs between settled boundaries are
///    balanced anew, each for itself. A dear head does not excuse a lopsided rest:
///    `[1, 1, 1, 1, 1, 1, 8]` over four stages is `2,2,2,1`, never `4,1,1,1`.
/// 2. Where there is still freedom, boundaries are set from the first to the last, each as close as
///    the bottleneck permits to an equal share of what is left, the earlier of two that are as
///    close. Layers that cost nothing are spread by number.
///
/// # Errors
/// If there are no parts, no layers, more parts than layers, or if the costs add up to more than a
/// `u64` holds.
pub fn balance(costs: &[u64], parts: usize) -> Result<Partition> {
    check_counts(costs.len(), parts)?;
    let prefix = Prefix::new(costs)?;
    balance_by(costs.len(), parts, |range| Some(prefix.cost(range)))
}

/// [`balance`] for any cost of a run of layers: `cost` is asked for non-empty ranges of `0..layers`
/// and answers `None` where the run does not fit a stage (its memory, say).
///
/// A longer run must never cost less than a shorter one inside it, nor fit where that does not.
/// It is asked once for every layer, and about `parts · log layers` times in each of at most 64
/// rounds of bisection.
///
/// # Errors
/// As [`balance`]; if a layer alone does not fit, if the layers do not fit so few parts, or if an
/// answer shows that the cost falls when a run grows.
pub fn balance_by(
    layers: usize,
    parts: usize,
    cost: impl Fn(Range<usize>) -> Option<u64>,
) -> Result<Partition> {
    check_counts(layers, parts)?;
    let oracle = Oracle { cost: &cost };
    let singles = oracle.singles(layers)?;
    let ends = place(&oracle, &singles, parts)?;
    Ok(Partition::from_ends(ends))
}

/// The least bottleneck alone.
pub(crate) fn bottleneck(
    layers: usize,
    parts: usize,
    cost: impl Fn(Range<usize>) -> Option<u64>,
) -> Result<u64> {
    check_counts(layers, parts)?;
    let oracle = Oracle { cost: &cost };
    let dearest = oracle.singles(layers)?.into_iter().max().unwrap_or(0);
    oracle.bottleneck(0..layers, parts, dearest)
}

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

/// A monotone cost of runs, and the searches that only need it to be monotone.
pub(crate) struct Oracle<'a, F> {
    cost: &'a F,
}

impl<F: Fn(Range<usize>) -> Option<u64>> Oracle<'_, F> {
    /// What each layer costs alone.
    fn singles(&self, layers: usize) -> Result<Vec<u64>> {
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
    /// for granted that one layer does. Steps double first: parts are short beside the model.
    pub(crate) fn furthest(&self, start: usize, most: usize, limit: u64) -> usize {
        gallop(most - start, |length| {
            self.within(start..start + length, limit)
        }) + start
    }

    /// The earliest start from `least` at which a run to `end` stays within the limit.
    pub(crate) fn earliest(&self, end: usize, least: usize, limit: u64) -> usize {
        end - gallop(end - least, |length| self.within(end - length..end, limit))
    }

    /// The least limit within which `layers` can be cut into `parts`, given the dearest layer.
    pub(crate) fn bottleneck(
        &self,
        layers: Range<usize>,
        parts: usize,
        dearest: u64,
    ) -> Result<u64> {
        let Some(mut high) = self.pack(layers.clone(), parts, u64::MAX)? else {
            return Err(Error::DoesNotFit {
                parts,
                needed: self.fewest(layers),
            });
        };
        let mut low = dearest;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.pack(layers.clone(), parts, middle)? {
                Some(reached) => high = reached.min(middle),
                None => low = middle + 1,
            }
        }
        Ok(high)
    }

    /// Packs greedily; the dearest part, or `None` if layers are left over.
    fn pack(&self, layers: Range<usize>, parts: usize, limit: u64) -> Result<Option<u64>> {
        let mut start = layers.start;
        let mut dearest = 0;
        for later in (0..parts).rev() {
            let end = self.furthest(start, layers.end - later, limit);
            dearest = dearest.max(self.known(start..end)?);
            start = end;
        }
        Ok((start == layers.end).then_some(dearest))
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

/// The largest length from 1 to `most` that `fits`, if 1 does and no length fits after one that
/// does not.
fn gallop(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut good = 1;
    let mut step = 1;
    while good < most {
        let next = good.saturating_add(step).min(most);
        if !fits(next) {
            return bisect(good, next, fits);
        }
        good = next;
        step *= 2;
    }
    most
}

/// The largest length below `bad` that fits, where `good` does and `bad` does not.
fn bisect(mut good: usize, mut bad: usize, fits: impl Fn(usize) -> bool) -> usize {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}
