//! Which of the optimal cuts is returned: see [`balance`](crate::balance) for the rule.

use std::ops::Range;

use crate::oracle::Oracle;
use crate::{Error, Result};

/// How often a run is cut at settled boundaries before freedom ends. Real models need two or three
/// rounds; costs that grow geometrically need more, until 64 bits end their growth; but an oracle can
/// be made to need a round for every part, in quadratic time.
const ROUNDS: usize = 100;

/// A run of layers between two settled boundaries.
struct Run {
    layers: Range<usize>,
    parts: usize,
    round: usize,
}

/// The end of each part, given what each layer costs alone.
pub(crate) fn place<F>(oracle: &Oracle<F>, singles: &[u64], parts: usize) -> Result<Vec<usize>>
where
    F: Fn(Range<usize>) -> Option<u64>,
{
    let weights = accumulated_weights(singles);
    let mut ends = Vec::with_capacity(parts);
    // The leftmost run is on top.
    let mut open = vec![Run {
        layers: 0..singles.len(),
        parts,
        round: 0,
    }];
    while let Some(run) = open.pop() {
        if run.parts == 1 && run.round > 0 {
            // It fits: its boundaries were settled by cuts that did.
            oracle.known(run.layers.clone())?;
            ends.push(run.layers.end);
            continue;
        }
        let most = singles[run.layers.clone()]
            .iter()
            .copied()
            .max()
            .unwrap_or(0);
        let limit = oracle.bottleneck(run.layers.clone(), run.parts, most)?;
        let windows = windows(oracle, &run, limit)?;
        let settled = |window: &Range<usize>| window.start == window.end;
        if run.round < ROUNDS && windows.iter().any(settled) {
            let first_open = open.len();
            let mut start = run.layers.start;
            let mut before = 0;
            let round = run.round + 1;
            for (part, window) in windows
                .iter()
                .enumerate()
                .filter(|(_, window)| settled(window))
            {
                open.push(Run {
                    layers: start..window.start,
                    parts: part + 1 - before,
                    round,
                });
                start = window.start;
                before = part + 1;
            }
            open.push(Run {
                layers: start..run.layers.end,
                parts: run.parts - before,
                round,
            });
            open[first_open..].reverse();
        } else {
            place_freely(oracle, &run, &windows, limit, &weights, &mut ends)?;
        }
    }
    Ok(ends)
}

/// Sums of what layers weigh when shares are measured: their cost, and a hair (all hairs together
/// weigh as much as one unit of cost), so that layers that cost nothing are spread too.
fn accumulated_weights(singles: &[u64]) -> Vec<u128> {
    let unit = singles.len() as u128;
    let mut sum = 0_u128;
    let mut sums = Vec::with_capacity(singles.len() + 1);
    sums.push(sum);
    for &cost in singles {
        sum = sum.saturating_add(u128::from(cost).saturating_mul(unit).saturating_add(1));
        sums.push(sum);
    }
    sums
}

/// The earliest and latest place (both possible) of each boundary inside a run, over all cuts
/// within the limit.
fn windows<F>(oracle: &Oracle<F>, run: &Run, limit: u64) -> Result<Vec<Range<usize>>>
where
    F: Fn(Range<usize>) -> Option<u64>,
{
    let boundaries = run.parts - 1;
    let mut windows = vec![0..0; boundaries];
    let mut start = run.layers.start;
    for (part, window) in windows.iter_mut().enumerate() {
        start = oracle.furthest(start, run.layers.end - (boundaries - part), limit);
        window.end = start;
    }
    let mut end = run.layers.end;
    for (part, window) in windows.iter_mut().enumerate().rev() {
        end = oracle.earliest(end, run.layers.start + part + 1, limit);
        window.start = end;
    }
    // Some cut stays within the limit, so that its boundaries lie in all windows.
    if let Some(part) = windows.iter().position(|window| window.start > window.end) {
        let start = part
            .checked_sub(1)
            .map_or(run.layers.start, |before| windows[before].end);
        let end = windows[part].end + 1;
        return Err(Error::NotMonotone { start, end });
    }
    Ok(windows)
}

/// Sets the boundaries of a run one after the other, each near an equal share of what is left.
///
/// A boundary at or after its earliest place leaves a rest that fits, so there is always a place
/// for the next one.
fn place_freely<F>(
    oracle: &Oracle<F>,
    run: &Run,
    windows: &[Range<usize>],
    limit: u64,
    weights: &[u128],
    ends: &mut Vec<usize>,
) -> Result<()>
where
    F: Fn(Range<usize>) -> Option<u64>,
{
    let mut start = run.layers.start;
    for (part, window) in windows.iter().enumerate() {
        let left = run.parts - part;
        let least = window.start.max(start + 1);
        let most = oracle
            .furthest(start, run.layers.end - (left - 1), limit)
            .max(least);
        let share = (weights[run.layers.end] - weights[start]) / left as u128;
        let end = nearest(weights, least..most, weights[start] + share);
        keep_within(oracle, start..end, limit)?;
        ends.push(end);
        start = end;
    }
    keep_within(oracle, start..run.layers.end, limit)?;
    ends.push(run.layers.end);
    Ok(())
}

/// The boundary from `among.start` to `among.end`, both included, whose sum is nearest to `target`,
/// the earlier of two.
fn nearest(sums: &[u128], among: Range<usize>, target: u128) -> usize {
    let (least, most) = (among.start, among.end);
    let above = least + sums[least..most].partition_point(|&sum| sum < target);
    if above > least && target - sums[above - 1] <= sums[above].abs_diff(target) {
        above - 1
    } else {
        above
    }
}

/// Only an oracle that is not monotone leads here to a part beyond the limit.
fn keep_within<F>(oracle: &Oracle<F>, range: Range<usize>, limit: u64) -> Result<()>
where
    F: Fn(Range<usize>) -> Option<u64>,
{
    let Range { start, end } = range;
    if oracle.known(range)? <= limit {
        Ok(())
    } else {
        Err(Error::NotMonotone { start, end })
    }
}

#[cfg(test)]
mod tests {
    use crate::balance;

    /// The sizes of the cut of `costs`.
    fn sizes(costs: &[u64], parts: usize) -> Vec<usize> {
        balance(costs, parts).unwrap().sizes()
    }

    #[test]
    fn an_expensive_layer_does_not_excuse_a_lopsided_rest() {
        assert_eq!(sizes(&[1, 1, 1, 1, 1, 1, 8], 4), [2, 2, 2, 1]);
        assert_eq!(sizes(&[8, 1, 1, 1, 1, 1, 1], 4), [1, 2, 2, 2]);
        assert_eq!(sizes(&[9, 1, 1, 1, 1, 1, 1, 9], 5), [1, 2, 2, 2, 1]);
        // The rest has a most expensive layer of its own.
        assert_eq!(sizes(&[1, 1, 1, 1, 1, 1, 20, 100], 5), [2, 2, 2, 1, 1]);
    }

    #[test]
    fn equal_layers_are_spread_evenly() {
        assert_eq!(sizes(&[1; 16], 4), [4, 4, 4, 4]);
        assert_eq!(sizes(&[5; 7], 3), [2, 2, 3]);
        assert_eq!(sizes(&[5; 8], 3), [3, 2, 3]);
        assert_eq!(sizes(&[1; 24], 7), [3, 3, 4, 3, 4, 3, 4]);
    }

    #[test]
    fn free_layers_are_spread_by_number() {
        assert_eq!(sizes(&[0; 9], 3), [3, 3, 3]);
        assert_eq!(sizes(&[0, 0, 0, 0, 6], 2), [4, 1]);
    }

    #[test]
    fn as_many_parts_as_layers() {
        assert_eq!(sizes(&[7, 0, 3], 3), [1, 1, 1]);
        assert_eq!(sizes(&[7], 1), [1]);
    }
}
