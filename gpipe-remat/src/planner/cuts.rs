//! Search for the cut of one candidate: exhaustive if there are few cuts, else local search.

use std::ops::{Range, RangeInclusive};

use gpipe_partition::search::least_bottleneck;

use super::candidate::{Candidate, Found};

/// Most pairs of cut and order of workers for an exhaustive search.
const FEW: usize = 3000;

/// The most actions simulated to improve one cut.
const CLIMB: u64 = 1_000_000;

/// How much slower than the best a cut may be to be worth improving.
pub(super) const FAR: f64 = 1.1;

pub(super) type Cut = Vec<Range<usize>>;

/// Whether the search over cuts and orders of workers is exhaustive.
pub(super) fn is_small(candidate: &Candidate<'_>) -> bool {
    let cuts = match candidate.request.cut {
        Some(_) => 1,
        None => ways(candidate.layers() - 1, candidate.stages() - 1),
    };
    let orders = arrangements(candidate);
    let stages = candidate.stages();
    let choices = candidate.chooser.effort(candidate.layers() / stages) * stages as u64;
    let effort = candidate.actions().saturating_add(choices);
    cuts.saturating_mul(orders) <= FEW && effort.saturating_mul((cuts * orders) as u64) <= 2_000_000
}

/// The best cut faster than `below`, within the effort left. `near` is a cut that may be close to it.
pub(super) fn search(
    candidate: &Candidate<'_>,
    near: Option<Cut>,
    left: &mut u64,
    below: f64,
) -> Option<Found> {
    let mut found = first(candidate, near, left, below)?;
    // Neighbours of a cut far from the best so far will not be better either.
    if !found.exact && found.seconds < FAR * below {
        climb(candidate, &mut found, left);
    }
    (found.seconds < below).then_some(found)
}

/// The best cut faster than `below` if there are few; else the best of some cuts to begin with.
pub(super) fn first(
    candidate: &Candidate<'_>,
    near: Option<Cut>,
    left: &mut u64,
    below: f64,
) -> Option<Found> {
    if is_small(candidate) {
        return all(candidate, left, below);
    }
    start(candidate, near, left)
}

/// The best of some cuts to begin with, of which `near` is one.
pub(super) fn start(candidate: &Candidate<'_>, near: Option<Cut>, left: &mut u64) -> Option<Found> {
    let mut best: Option<Found> = None;
    for workers in some_arrangements(candidate) {
        if let Some(cut) = &candidate.request.cut {
            better(&mut best, candidate.evaluate(cut, &workers, left));
            continue;
        }
        let mut start: Option<Found> = None;
        for cut in near.clone().into_iter().chain(even(candidate, &workers)) {
            better(&mut start, candidate.evaluate(&cut, &workers, left));
        }
        if start.is_none() {
            let cut = roomy(candidate, &workers);
            let found = cut.and_then(|cut| candidate.evaluate(&cut, &workers, left));
            better(&mut start, found);
        }
        better(&mut best, start);
    }
    best
}

fn better(best: &mut Option<Found>, found: Option<Found>) {
    if let Some(found) = found
        && best
            .as_ref()
            .is_none_or(|best| found.seconds < best.seconds)
    {
        *best = Some(found);
    }
}

/// Exhaustive search over cuts and orders of workers, with early pruning.
fn all(candidate: &Candidate<'_>, left: &mut u64, below: f64) -> Option<Found> {
    let mut best: Option<Found> = None;
    for workers in all_arrangements(candidate) {
        if let Some(cut) = &candidate.request.cut {
            better(&mut best, candidate.evaluate(cut, &workers, left));
            continue;
        }
        let mut cut = Cut::new();
        extend(candidate, &workers, &mut cut, left, below, &mut best);
    }
    let mut best = best.filter(|found| found.seconds < below)?;
    best.exact = true;
    Some(best)
}

fn extend(
    candidate: &Candidate<'_>,
    workers: &[usize],
    cut: &mut Cut,
    left: &mut u64,
    below: f64,
    best: &mut Option<Found>,
) {
    let (layers, stages) = (candidate.layers(), candidate.stages());
    let start = cut.last().map_or(0, |part| part.end);
    let stage = cut.len();
    if stage == stages {
        better(best, candidate.evaluate(cut, workers, left));
        return;
    }
    let least = if stage + 1 == stages {
        layers
    } else {
        start + 1
    };
    let device = candidate.schedule.device_of()[stage];
    let fastest = workers
        .iter()
        .map(|&worker| candidate.request.workers[worker].speed);
    let fastest = fastest.fold(0.0, f64::max);
    for end in least..=layers - (stages - 1 - stage) {
        let part = start..end;
        let known = best.as_ref().map_or(below, |best| best.seconds.min(below));
        // Longer runs take longer.
        let shared = candidate.request.cores.is_some();
        if !shared && candidate.bounds.critical_path(&part) / fastest * (1.0 - 1e-12) >= known {
            break;
        }
        // Longer runs may still fit: their output may be smaller.
        if candidate.stage(stage, &part, workers[device]).is_none() {
            continue;
        }
        cut.push(part);
        extend(candidate, workers, cut, left, below, best);
        cut.pop();
    }
}

/// Even work for equal workers, whether it fits or not.
pub(super) fn balanced(candidate: &Candidate<'_>) -> Option<Cut> {
    let work = |_: usize, part: &Range<usize>| Some(candidate.bounds.work(part));
    least_longest(candidate, work)
}

/// Initial cuts: even work for the speeds of the workers, and the shortest critical path.
fn even(candidate: &Candidate<'_>, workers: &[usize]) -> Vec<Cut> {
    let device_of = candidate.schedule.device_of();
    let speed = |stage: usize| candidate.request.workers[workers[device_of[stage]]].speed;
    let way = |stage: usize, part: &Range<usize>| {
        Some(candidate.bounds.critical_path(part) / speed(stage))
    };
    let work = |stage: usize, part: &Range<usize>| Some(candidate.bounds.work(part) / speed(stage));
    let cuts = [
        least_longest(candidate, work),
        least_longest(candidate, way),
    ];
    let mut cuts: Vec<Cut> = cuts.into_iter().flatten().collect();
    cuts.dedup();
    cuts
}

/// The cut with the least maximal work per stage, recomputation included, among those that fit.
fn roomy(candidate: &Candidate<'_>, workers: &[usize]) -> Option<Cut> {
    let device_of = candidate.schedule.device_of();
    least_longest(candidate, |stage, part| {
        let worker = workers[device_of[stage]];
        let plan = candidate.stage(stage, part, worker)?;
        let again = plan.again[0] * candidate.schedule.micro_batches() as f64;
        let work = candidate.bounds.work(part) + again;
        Some(work / candidate.request.workers[worker].speed)
    })
}

/// The cut whose longest stage is shortest, where a longer run never takes less.
fn least_longest(
    candidate: &Candidate<'_>,
    seconds: impl Fn(usize, &Range<usize>) -> Option<f64>,
) -> Option<Cut> {
    let (layers, stages) = (candidate.layers(), candidate.stages());
    let cost = |stage: usize, part: Range<usize>| seconds(stage, &part);
    let (ends, _) = least_bottleneck(0..layers, stages, 0.0, 40, cost)?;
    let starts = [0].into_iter().chain(ends.iter().copied());
    Some(starts.zip(&ends).map(|(start, &end)| start..end).collect())
}

/// Moves boundaries, unless the cut is given, while that improves it: by many layers at a time at first, then by one.
pub(super) fn climb(candidate: &Candidate<'_>, found: &mut Found, left: &mut u64) {
    if candidate.request.cut.is_some() {
        return;
    }
    // The more layers a stage has, the further the best boundary may be.
    let mut by = (candidate.layers() / candidate.stages() / 8).max(1);
    let least = left.saturating_sub(CLIMB);
    loop {
        let before = found.seconds;
        // The boundaries of the longest stage first: they promise the largest gain.
        let near = |boundary: &usize| boundary.abs_diff(found.bottleneck);
        let mut boundaries: Vec<usize> = (1..found.cut.len()).collect();
        boundaries.sort_by_key(near);
        // One boundary, or two that move a stage as it is.
        let moves = boundaries.iter().flat_map(|&first| {
            let last = (first + 1).min(found.cut.len() - 1);
            [
                (first, first, false),
                (first, first, true),
                (first, last, false),
                (first, last, true),
            ]
        });
        let moves: Vec<(usize, usize, bool)> = moves.collect();
        for (first, last, forward) in moves {
            if *left < least + candidate.actions() {
                return;
            }
            let Some(cut) = moved(&found.cut, first..=last, by, forward) else {
                continue;
            };
            let tried = candidate.evaluate(&cut, &found.workers, left);
            if let Some(tried) = tried
                && tried.seconds < found.seconds
            {
                *found = tried;
            }
        }
        if found.seconds >= before * (1.0 - 1e-9) {
            if by == 1 {
                return;
            }
            by /= 2;
        }
    }
}

/// The cut with the beginnings of these stages moved by a number of layers, if every stage keeps one.
fn moved(cut: &Cut, stages: RangeInclusive<usize>, by: usize, forward: bool) -> Option<Cut> {
    let mut cut = cut.clone();
    for stage in stages {
        let place = cut[stage].start;
        let place = match forward {
            true => place + by,
            false => place.checked_sub(by)?,
        };
        cut[stage - 1].end = place;
        cut[stage].start = place;
    }
    cut.iter().all(|part| part.start < part.end).then_some(cut)
}

/// The binomial coefficient `many` over `few`; saturates at `usize::MAX`.
fn ways(many: usize, few: usize) -> usize {
    let few = few.min(many.saturating_sub(few));
    let mut ways = 1_usize;
    for taken in 0..few {
        match ways.checked_mul(many - taken) {
            Some(product) => ways = product / (taken + 1),
            None => return usize::MAX,
        }
    }
    ways
}

fn alike(candidate: &Candidate<'_>) -> bool {
    let workers = &candidate.request.workers;
    workers.windows(2).all(|pair| pair[0] == pair[1])
}

/// Number of orders of the workers on the devices.
fn arrangements(candidate: &Candidate<'_>) -> usize {
    if alike(candidate) {
        return 1;
    }
    let (workers, devices) = (
        candidate.request.workers.len(),
        candidate.schedule.devices(),
    );
    (0..devices).fold(1_usize, |product, taken| {
        product.saturating_mul(workers - taken)
    })
}

fn all_arrangements(candidate: &Candidate<'_>) -> Vec<Vec<usize>> {
    let devices = candidate.schedule.devices();
    if alike(candidate) {
        return vec![(0..devices).collect()];
    }
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..devices {
        all = all
            .into_iter()
            .flat_map(|taken| {
                let free = (0..candidate.request.workers.len())
                    .filter(|worker| !taken.contains(worker))
                    .collect::<Vec<_>>();
                free.into_iter().map(move |worker| {
                    let mut more = taken.clone();
                    more.push(worker);
                    more
                })
            })
            .collect();
    }
    all
}

/// Orders of workers to try if there are too many for all: the fastest workers as listed, by descending
/// speed, by ascending speed, and by descending memory; and the workers with the most memory of all.
fn some_arrangements(candidate: &Candidate<'_>) -> Vec<Vec<usize>> {
    let devices = candidate.schedule.devices();
    if alike(candidate) {
        return vec![(0..devices).collect()];
    }
    let workers = &candidate.request.workers;
    let memory = |worker: usize| workers[worker].memory.unwrap_or(u64::MAX);
    let mut fastest: Vec<usize> = (0..workers.len()).collect();
    fastest.sort_by(|&a, &b| workers[b].speed.total_cmp(&workers[a].speed));
    fastest.truncate(devices);
    let mut listed = fastest.clone();
    listed.sort_unstable();
    let slowest = fastest.iter().rev().copied().collect();
    let mut roomy = listed.clone();
    roomy.sort_by_key(|&worker| std::cmp::Reverse(memory(worker)));
    let mut roomiest: Vec<usize> = (0..workers.len()).collect();
    roomiest.sort_by(|&a, &b| {
        let by_memory = memory(b).cmp(&memory(a));
        by_memory.then(workers[b].speed.total_cmp(&workers[a].speed))
    });
    roomiest.truncate(devices);
    let mut some: Vec<Vec<usize>> = Vec::new();
    for order in [listed, fastest, slowest, roomy, roomiest] {
        if !some.contains(&order) {
            some.push(order);
        }
    }
    some
}
