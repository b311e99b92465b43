//! The search that every exact cut rests on, for any cost of a run of layers.
//!
//! Whether a list of layers can be cut so that every part stays within a limit is decided by
//! packing greedily ([`pack`]), each part found by doubling and halving its length ([`furthest`]).
//! The least such limit is found by bisection ([`bisect`], [`least_bottleneck`]). (Pınar and
//! Aykanat, "Fast optimal load balancing algorithms for 1D partitioning", 2004, compare such
//! methods.)
//!
//! The answers are right where a longer run never costs less than a shorter one inside it. Where
//! that does not hold they are cuts within their limits all the same, but a better one may be
//! missed. Nothing panics, whatever an oracle answers, as long as memory holds a number for each part.
//!
//! Packing asks a few times for each part. Only where parts differ and one has to end early, lest a later one find no
//! layers, it asks for parts times layers in the worst case, and remembers as many answers.
//!
//! ```
//! use gpipe_partition::search::{least_bottleneck, pack};
//!
//! // Two workers, the second twice as fast: seconds of a run of layers on each of them.
//! let work = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0];
//! let seconds = |part: usize, layers: std::ops::Range<usize>| {
//!     let work: f64 = work[layers].iter().sum();
//!     Some(work / [1.0, 2.0][part])
//! };
//! let (ends, longest) = least_bottleneck(0..6, 2, 0.0, 40, seconds).unwrap();
//! assert_eq!((ends, longest), (vec![3, 6], 8.0));
//!
//! // No cut is within 7 seconds. (Compared as they are, `None` would be less than any.)
//! let within = |part, layers| seconds(part, layers).is_some_and(|seconds| seconds <= 7.0);
//! assert_eq!(pack(0..6, 2, within), None);
//! ```

use std::ops::Range;

/// A number that limits the cost of a part and can be bisected.
pub trait Limit: Copy + PartialOrd {
    /// The least cost that there is.
    const LEAST: Self;
    /// A limit that every cost stays within.
    const MOST: Self;

    /// A number strictly between the two; `None` where the type has none, or `low` is not below
    /// `high`.
    fn between(low: Self, high: Self) -> Option<Self>;
}

impl Limit for u64 {
    const LEAST: Self = 0;
    const MOST: Self = Self::MAX;

    fn between(low: Self, high: Self) -> Option<Self> {
        let apart = high.checked_sub(low)?;
        (apart > 1).then(|| low + apart / 2)
    }
}

impl Limit for f64 {
    const LEAST: Self = 0.0;
    const MOST: Self = Self::MAX;

    fn between(low: Self, high: Self) -> Option<Self> {
        // The sum of both may be more than a number holds.
        let middle = 0.5 * low + 0.5 * high;
        (low < middle && middle < high).then_some(middle)
    }
}

/// The furthest end up to `most` of a run from `start` that fits, or `None` if a run of one layer
/// does not. `fits` is given an end, and must not be true after one for which it is false.
///
/// Steps double first, because parts are short beside the model and short runs are sooner judged;
/// then they halve: about `2 · log2(length)` calls.
pub fn furthest(start: usize, most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    // The furthest end that fits so far, and the last that may.
    let (mut good, mut last) = (start, most);
    let mut step = 1;
    while good < last {
        let next = good.saturating_add(step).min(last - (last - good) / 2);
        if fits(next) {
            (good, step) = (next, step.saturating_mul(2));
        } else {
            // From now on it halves.
            (last, step) = (next - 1, usize::MAX);
        }
    }
    (good > start).then_some(good)
}

/// The ends of `parts` parts of `layers` that all fit and have a layer or more; `None` if there are none. `fits` is given
/// the number of a part and its layers.
///
/// Each part is as long as possible while one layer is left for every later part, unless a later part would then have to
/// begin with a layer that does not fit it.
pub fn pack(
    layers: Range<usize>,
    parts: usize,
    fits: impl Fn(usize, Range<usize>) -> bool,
) -> Option<Vec<usize>> {
    // It grows: the first parts may not fit, of numbers for which there is no memory.
    let mut ends = Vec::new();
    let mut start = layers.start;
    for part in 0..parts {
        let most = layers.end.checked_sub(parts - 1 - part)?;
        start = match furthest(start, most, |end| fits(part, start..end)) {
            Some(end) => end,
            // Where each part before has one layer, none can end earlier.
            None if start - layers.start > part
                && start < most
                && (0..parts).any(|other| fits(other, start..start + 1)) =>
            {
                return pack_with_early_ends(layers, parts, fits);
            }
            None => return None,
        };
        ends.push(start);
    }
    (start == layers.end).then_some(ends)
}

/// [`pack`] where a part has to end early: all ends that a part can have follow from those of the part before it.
fn pack_with_early_ends(
    layers: Range<usize>,
    parts: usize,
    fits: impl Fn(usize, Range<usize>) -> bool,
) -> Option<Vec<usize>> {
    // For each part its ends, ascending, and a start from which it reaches each of them.
    let mut reached: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut starts = vec![layers.start];
    for part in 0..parts {
        let most = layers.end.checked_sub(parts - 1 - part)?;
        let mut ends = Vec::new();
        let mut end = layers.start;
        for start in starts {
            // What fits from an earlier start fits from this one.
            end = end.max(start);
            while end < most && fits(part, start..end + 1) {
                end += 1;
                ends.push((end, start));
            }
        }
        if ends.is_empty() {
            return None;
        }
        starts = ends.iter().map(|&(end, _)| end).collect();
        reached.push(ends);
    }
    let mut end = layers.end;
    let mut ends = Vec::with_capacity(reached.len());
    for reached in reached.iter().rev() {
        let place = reached.binary_search_by_key(&end, |&(end, _)| end).ok()?;
        ends.push(end);
        end = reached[place].1;
    }
    ends.reverse();
    Some(ends)
}

/// Narrows a limit down: `low` is too small, `high` is enough, and `reach` answers with the limit
/// that was needed (the one asked for, or a smaller one) or `None` where that is too small. Returns
/// both ends when there is no number between them, or after `rounds` rounds.
pub fn bisect<L: Limit>(
    mut low: L,
    mut high: L,
    rounds: u32,
    mut reach: impl FnMut(L) -> Option<L>,
) -> (L, L) {
    for _ in 0..rounds {
        let Some(middle) = L::between(low, high) else {
            break;
        };
        match reach(middle) {
            Some(reached) => high = if reached < middle { reached } else { middle },
            None => low = middle,
        }
    }
    (low, high)
}

/// The cut of `layers` into `parts` whose most expensive part is cheapest, as the ends of its parts
/// and what that part costs. `cost` is given the number of a part and its layers, and answers `None`
/// where they do not fit. `None` if no cut fits.
///
/// `low` is a cost that no cut stays within (or the least there is). 64 rounds are enough for every
/// `u64`; a fraction comes closer by half with each.
pub fn least_bottleneck<L: Limit>(
    layers: Range<usize>,
    parts: usize,
    low: L,
    rounds: u32,
    cost: impl Fn(usize, Range<usize>) -> Option<L>,
) -> Option<(Vec<usize>, L)> {
    let within = |limit: L| {
        let ends = pack(layers.clone(), parts, |part, run| {
            cost(part, run).is_some_and(|cost| cost <= limit)
        })?;
        let bottleneck = bottleneck(layers.start, &ends, &cost)?;
        Some((ends, bottleneck))
    };
    // Bisection tries limits above `low` alone.
    if low <= L::LEAST
        && let Some(found) = within(L::LEAST)
    {
        return Some(found);
    }
    let (mut best, high) = within(L::MOST)?;
    let (_, least) = bisect(low, high, rounds, |limit| {
        let (ends, reached) = within(limit)?;
        best = ends;
        Some(reached)
    });
    Some((best, least))
}

/// What the most expensive part of a cut costs.
fn bottleneck<L: Limit>(
    mut start: usize,
    ends: &[usize],
    cost: impl Fn(usize, Range<usize>) -> Option<L>,
) -> Option<L> {
    let mut most = L::LEAST;
    for (part, &end) in ends.iter().enumerate() {
        let cost = cost(part, start..end)?;
        if cost > most {
            most = cost;
        }
        start = end;
    }
    Some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_near_the_largest_number_are_cut_best() {
        let costs = [1.0, 0.25, 0.25, 0.25, 0.125];
        let cost = |_: usize, run: Range<usize>| Some(costs[run].iter().sum::<f64>() * 1e308);
        let cut = least_bottleneck(0..5, 2, 0.0, 64, cost);
        assert_eq!(cut, Some((vec![1, 5], 1e308)));
    }

    #[test]
    fn a_cut_that_costs_the_least_there_is_is_found() {
        // The first two layers beside each other cost 1, the last two nothing.
        let cost = |_: usize, run: Range<usize>| Some(u64::from(run.len() > 1 && run.start < 2));
        let cut = least_bottleneck(0..4, 3, 0, 64, cost);
        assert_eq!(cut, Some((vec![1, 2, 4], 0)));
    }

    #[test]
    fn the_furthest_end_is_found_from_every_start() {
        for most in 1..40 {
            for start in 0..most {
                for last in start..=most {
                    let expected = (last > start).then_some(last);
                    assert_eq!(furthest(start, most, |end| end <= last), expected);
                }
            }
        }
        assert_eq!(furthest(5, 5, |_| true), None);
        assert_eq!(furthest(5, 3, |_| true), None);
        let most = usize::MAX;
        assert_eq!(furthest(0, most, |_| true), Some(most));
        assert_eq!(furthest(most - 1, most, |_| true), Some(most));
        assert_eq!(pack(0..most, 2, |_, _| true), Some(vec![most - 1, most]));
        assert_eq!(pack(0..most, most, |_, _| false), None);
        assert_eq!(pack(0..most, most - 9, |part, _| part < 9), None);
    }

    #[test]
    fn packing_leaves_a_layer_for_every_later_part() {
        let fits = |most: usize| move |_: usize, run: Range<usize>| run.len() <= most;
        assert_eq!(pack(2..7, 3, fits(9)), Some(vec![5, 6, 7]));
        assert_eq!(pack(2..7, 3, fits(2)), Some(vec![4, 6, 7]));
        assert_eq!(pack(2..7, 3, fits(1)), None);
        assert_eq!(pack(0..2, 3, fits(9)), None);
        assert_eq!(pack(0..0, 0, fits(9)), Some(vec![]));
        // An oracle is asked about layers that are there.
        let none = |_: usize, run: Range<usize>| panic!("asked about {run:?}");
        assert_eq!(pack(3..3, 1, none), None);
        assert_eq!(pack(2..4, 5, none), None);
    }

    /// The least bottleneck of all cuts into parts of these speeds.
    fn least_of_all(costs: &[u64], speeds: &[u64]) -> Option<u64> {
        let (&speed, later) = speeds.split_first()?;
        let cost = |run: &[u64]| run.iter().sum::<u64>() * speed;
        if later.is_empty() {
            return (!costs.is_empty()).then(|| cost(costs));
        }
        let ends = 1..costs.len();
        let cuts = ends
            .filter_map(|end| Some(cost(&costs[..end]).max(least_of_all(&costs[end..], later)?)));
        cuts.min()
    }

    #[test]
    fn parts_that_differ_are_cut_best() {
        // The layer of 3 is too much for the third part, which would be left with it.
        assert_eq!(least_of_all(&[0, 1, 3, 1, 0], &[1, 1, 3, 3]), Some(3));
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut stuck = 0;
        for _ in 0..3000 {
            let costs: Vec<u64> = (0..=random(7)).map(|_| random(5)).collect();
            let speeds: Vec<u64> = (0..=random(4)).map(|_| 1 + random(3)).collect();
            let cost = |part: usize, run: Range<usize>| {
                Some(costs[run].iter().sum::<u64>() * speeds[part])
            };
            let cut = least_bottleneck(0..costs.len(), speeds.len(), 0, 64, cost);
            let least = least_of_all(&costs, &speeds);
            assert_eq!(
                cut.as_ref().map(|(_, least)| *least),
                least,
                "{costs:?} {speeds:?}"
            );
            let Some((ends, least)) = cut else { continue };
            assert_eq!(bottleneck(0, &ends, cost), Some(least));
            assert!(ends.is_sorted_by(|a, b| a < b));
            let greedy = ends.iter().enumerate().try_fold(0, |start, (part, _)| {
                let most = costs.len() - (speeds.len() - 1 - part);
                furthest(start, most, |end| cost(part, start..end) <= Some(least))
            });
            stuck += usize::from(greedy.is_none());
        }
        assert!(stuck > 5, "{stuck} of 3000 cuts end a part early");
    }

    #[test]
    fn bisection_ends_at_neighbours() {
        let reach = |least: u64| move |limit| (limit >= least).then_some(limit);
        for least in [1, 2, 77, u64::MAX] {
            let (low, high) = bisect(0, u64::MAX, 64, reach(least));
            assert_eq!((low, high), (least - 1, least));
        }
        assert_eq!(bisect(5, 3, 64, reach(0)), (5, 3));
        assert_eq!(f64::between(0.0, f64::MAX), Some(0.5 * f64::MAX));
        assert_eq!(f64::between(1.0, f64::NAN), None);
        // Between neighbours the mean is rounded down or up.
        let [one, two] = [1.0 + f64::EPSILON, 1.0 + 2.0 * f64::EPSILON];
        assert_eq!(f64::between(1.0, one), None);
        assert_eq!(f64::between(one, two), None);
    }
}
