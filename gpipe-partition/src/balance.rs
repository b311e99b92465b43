//! The exact min-max cut.
//!
//! The classic argument: whether every part can stay within a limit is decided by packing
//! greedily, so the least limit is found by bisection ([`search`](crate::search)), in
//! `O(parts · log layers · log cost)` steps and with no table.

use std::ops::Range;

use crate::error::check_counts;
use crate::oracle::{Oracle, Prefix, ROUNDS};
use crate::placement::place;
use crate::search::least_bottleneck;
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

/// The cut with the least bottleneck where the cost of a run of layers depends on the part that holds it: `cost` is given
/// the number of a part and its layers. Parts may compute some of their layers again, say, or be of different speeds.
///
/// Of several such cuts, the one whose parts before and behind the most expensive part (the first of several) are cut in
/// the same way, each side by itself; where parts do not differ, [`balance_by`] spreads layers more evenly.
///
/// A longer run must never cost less than a shorter one inside it: a better cut may be missed where it does. There is at
/// most one search ([`least_bottleneck`]) for each part.
///
/// # Errors
/// If there are no parts, no layers, or more parts than layers.
///
/// # Panics
/// For more parts than a list can have numbers (`isize::MAX` bytes).
///
/// ```
/// # use std::ops::Range;
/// // The last stage does not compute its forward pass, a third of all, again.
/// let again = |part: usize| [1, 1, 0][part];
/// let cost = |part: usize, layers: Range<usize>| layers.len() as u64 * (3 + again(part));
/// assert_eq!(gpipe_partition::balance_parts(10, 3, cost)?.to_string(), "3,3,4");
/// # Ok::<(), gpipe_partition::Error>(())
/// ```
pub fn balance_parts(
    layers: usize,
    parts: usize,
    cost: impl Fn(usize, Range<usize>) -> u64,
) -> Result<Partition> {
    check_counts(layers, parts)?;
    let mut ends = vec![layers; parts];
    // Runs of layers for runs of parts that are still to be cut.
    let mut open = vec![(0..layers, 0..parts)];
    while let Some((layers, parts)) = open.pop() {
        let of = |part: usize, run| Some(cost(parts.start + part, run));
        let found = least_bottleneck(layers.clone(), parts.len(), 0, ROUNDS, of);
        // Every run has a cost, so there is a cut.
        let Some((found, most)) = found else { continue };
        let start = |part: usize| part.checked_sub(1).map_or(layers.start, |one| found[one]);
        let is_most = |part: &usize| of(*part, start(*part)..found[*part]) == Some(most);
        let part = (0..found.len()).find(is_most).unwrap_or(0);
        let (start, end) = (start(part), found[part]);
        let part = parts.start + part;
        ends[part] = end;
        if part > parts.start {
            ends[part - 1] = start;
            open.push((layers.start..start, parts.start..part));
        }
        if part + 1 < parts.end {
            open.push((end..layers.end, part + 1..parts.end));
        }
    }
    Ok(Partition::from_ends(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expensive_part_does_not_excuse_a_lopsided_rest() {
        let sizes = |costs: &[u64], factors: &[u64]| {
            let cost =
                |part: usize, run: Range<usize>| costs[run].iter().sum::<u64>() * factors[part];
            let cut = balance_parts(costs.len(), factors.len(), cost);
            cut.unwrap().sizes()
        };
        assert_eq!(sizes(&[1, 1, 1, 1, 1, 1, 80], &[4, 4, 4, 3]), [2, 2, 2, 1]);
        assert_eq!(sizes(&[80, 1, 1, 1, 1, 1, 1], &[3, 4, 4, 4]), [1, 2, 2, 2]);
        assert_eq!(
            sizes(&[1, 1, 1, 1, 1, 1, 20, 100], &[1, 1, 1, 2, 1]),
            [2, 2, 2, 1, 1]
        );
        assert_eq!(sizes(&[0; 4], &[1, 2]).iter().sum::<usize>(), 4);
        assert!(balance_parts(2, 3, |_, _| 1).is_err());
        assert!(balance_parts(0, 0, |_, _| 1).is_err());
    }
}
