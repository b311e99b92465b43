//! Lower bound of the work of the busiest worker, where layers are too large to be spread evenly.

use std::ops::Range;

/// Beyond this many units on a worker, an even spread is about as good a bound.
const MOST: usize = 32;

/// Beyond this effort, there are enough layers to spread them evenly.
const EFFORT: usize = 200_000;

/// Works of layers that units are taken from.
const UNITS: usize = 8;

/// A lower bound of the most work on any of `workers`, each with up to `chunks` runs of layers.
///
/// A layer weighs as many whole units as its work has. Some worker has at least its share of all units,
/// rounded up, and so no less work than the cheapest `chunks` runs that weigh as much. Any unit gives a
/// bound.
pub(super) fn busiest(work: &[f64], workers: usize, chunks: usize) -> f64 {
    let mut sorted: Vec<f64> = work.iter().copied().filter(|&work| work > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let step = sorted.len().div_ceil(UNITS).max(1);
    let units = sorted.iter().rev().step_by(step);
    let units = units.flat_map(|&work| [work, work / 2.0, work / 3.0]);
    let bounds = units.map(|unit| {
        // Which layers weigh how much is free: rounding does no harm.
        let weigh = |work: &f64| (work / unit * (1.0 + 1e-12)).min(1e6) as usize;
        let weights: Vec<usize> = work.iter().map(weigh).collect();
        match weights.iter().sum::<usize>().div_ceil(workers) {
            share @ 1..=MOST if work.len() * chunks * share < EFFORT => {
                cheapest(work, &weights, chunks, share)
            }
            _ => 0.0,
        }
    });
    bounds.fold(0.0, f64::max)
}

/// The least work of up to `chunks` runs that weigh at least `share`.
fn cheapest(work: &[f64], weights: &[usize], chunks: usize, share: usize) -> f64 {
    // By runs begun and their weight: the least work where the last layer is in a run, and where it may
    // be outside.
    let places: Range<usize> = 0..(chunks + 1) * (share + 1);
    let mut within = vec![f64::INFINITY; places.len()];
    let mut outside = within.clone();
    outside[0] = 0.0;
    let at = |runs: usize, count: usize| runs * (share + 1) + count;
    for (&own, &weight) in work.iter().zip(weights) {
        let (last_within, last_outside) = (within.clone(), outside.clone());
        within.fill(f64::INFINITY);
        for runs in 1..=chunks {
            for count in 0..=share {
                let before = last_within[at(runs, count)].min(last_outside[at(runs - 1, count)]);
                let now = at(runs, (count + weight).min(share));
                within[now] = within[now].min(before + own);
            }
        }
        for place in places.clone() {
            outside[place] = last_outside[place].min(within[place]);
        }
    }
    let all = (0..=chunks).map(|runs| outside[at(runs, share)]);
    all.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least work of the busiest worker over every way to deal out the layers as runs: each layer goes
    /// on with the worker before it or begins a run of any worker.
    fn exact(work: &[f64], workers: usize, chunks: usize) -> f64 {
        fn deal(rest: &[f64], last: usize, loads: &mut [f64], runs: &mut [usize], best: &mut f64) {
            let Some((&own, rest)) = rest.split_first() else {
                *best = best.min(loads.iter().copied().fold(0.0, f64::max));
                return;
            };
            for worker in 0..loads.len() {
                let begins = usize::from(worker != last);
                if runs[worker] < begins {
                    continue;
                }
                runs[worker] -= begins;
                loads[worker] += own;
                deal(rest, worker, loads, runs, best);
                loads[worker] -= own;
                runs[worker] += begins;
            }
        }
        let (mut loads, mut runs) = (vec![0.0; workers], vec![chunks; workers]);
        let mut best = f64::INFINITY;
        deal(work, workers, &mut loads, &mut runs, &mut best);
        best
    }

    #[test]
    fn no_way_to_deal_out_layers_is_below_the_bound() {
        let (mut reached, mut above_even, mut planted) = (0, 0, 0);
        let mut state = 7_u64;
        for _ in 0..300 {
            let mut below = |most: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % most
            };
            let (workers, chunks) = (2 + below(2) as usize, 1 + below(2) as usize);
            let layers = (workers * chunks) as u64 + below(5);
            let work: Vec<f64> = (0..layers).map(|_| (1 + below(3)) as f64).collect();
            let best = exact(&work, workers, chunks);
            let bound = busiest(&work, workers, chunks);
            assert!(bound <= best, "{work:?} on {workers}: {bound} above {best}");
            reached += usize::from(bound == best);
            above_even += usize::from(bound > work.iter().sum::<f64>() / workers as f64);
            // One layer more than its share on some worker would be too strong.
            let share = work.len().div_ceil(workers) + 1;
            let too_strong = cheapest(&work, &vec![1; work.len()], chunks, share.min(work.len()));
            planted += usize::from(too_strong > best);
        }
        assert!(reached > 100 && above_even > 50, "{reached}, {above_even}");
        assert!(
            planted > 50,
            "a bound that is too strong is seen {planted} times"
        );
    }
}
