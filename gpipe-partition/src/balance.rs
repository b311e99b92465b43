//! The exact min-max cut.
//!
//! The classic argument: whether every part can stay within a limit is decided by packing
//! greedily, so the least limit is found by bisection ([`search`](crate::search)), in
//! `O(parts · log layers · log cost)` steps and with no table.

use std::ops::Range;

use crate::error::check_counts;
use crate::oracle::{Oracle, Prefix};
use crate::placement::place;
use crate::{Partition, Result};

/// The contiguous cut whose most expensive part is cheapest.
///
/// Usually several cuts share that bottleneck; which one is returned is a function of the costs:
///
/// 1. A boundary that all of them share is settled, and the runs between settled boundaries are
///    balanced anew, each by itself. An expensive head does not excuse a lopsided rest:
///    `[1, 1, 1, 1, 1, 1, 8]` over four stages is `2,2,2,1`, never `4,1,1,1`.
/// 2. Where there is still freedom, boundaries are set from the first to the last, each as close as
///    the bottleneck permits to an equal share of what is left, the earlier of two that are as
///    close. A layer counts its cost and a hair, all hairs together one unit of cost: of two places
///    that are as close by cost alone the one that is closer by number is taken, and layers that
///    cost nothing are spread by number.
///
/// # Errors
/// If there are no parts, no layers, more parts than layers, or if the costs add up to more than a
/// `u64` holds.
pub fn balance(costs: &[u64], parts: usize) -> Result<Partition> {
    check_counts(costs.len(), parts)?;
    let prefix = Prefix::new(costs)?;
    balance_by(costs.len(), parts, |range| Some(prefix.cost(range)))
}

/// [`balance`] for any cost of a run of layers: `cost` is given non-empty ranges of `0..layers`
/// and answers `None` where the run does not fit a stage (its memory, say).
///
/// A longer run must never cost less than a shorter one inside it, nor fit where that does not.
/// It is asked once for every layer, and about `parts · log layers` times in each of at most 66
/// rounds of bisection; again for the runs between settled boundaries, at most 100 times.
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
