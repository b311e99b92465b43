//! A first look at plans of all sizes, for questions that are too large to look at every plan.
//!
//! The search goes by bounds, which are nearly the same for all schedules of a number of workers: with hundreds of
//! workers its effort would be spent on a few plans of one size. The survey goes from one worker up, twice as many at a
//! time, with about as many micro-batches as workers and up to four times as many, and then from the best of these to
//! its neighbours. So what is found with few workers is found where more are allowed too.

use std::collections::{BTreeSet, HashMap};

use super::candidate::{Candidate, Found};
use super::certificate::Shape;
use super::cuts;
use super::search::{EQUAL, Open, Planner};
use crate::Result;

/// The most actions of plans that are looked at under every schedule, not only under that of the best so far.
const FEW: usize = 4_000;

/// Micro-batches for each worker.
const PER_WORKER: [usize; 3] = [1, 2, 4];

/// The best plan that a survey has seen.
struct Sight<'a> {
    shape: Shape,
    candidate: Candidate<'a>,
    found: Found,
}

/// A survey under way.
struct Survey<'a> {
    bounds: HashMap<Shape, f64>,
    seen: BTreeSet<Shape>,
    best: Option<Sight<'a>>,
    below: f64,
    /// The effort that it leaves to the search.
    rest: u64,
}

impl<'a> Planner<'a> {
    /// Whether all plans are more than there is effort for.
    pub(super) fn is_too_much(&self, open: &[Open]) -> bool {
        let actions = |&(_, workers, order, micro_batches): &Open| {
            let order = &self.request.orders[order];
            let stages = workers.saturating_mul(order.chunks);
            2 * stages.saturating_mul(micro_batches) as u64
        };
        let all = open.iter().map(actions).fold(0, u64::saturating_add);
        all > self.left
    }

    /// The best plan seen that takes less than `below`, for at most half of the effort.
    pub(super) fn survey(
        &mut self,
        open: &[Open],
        below: f64,
    ) -> Result<Option<(Candidate<'a>, Found)>> {
        let shapes = open.iter().map(|&(bound, workers, order, micro_batches)| {
            ((workers, order, micro_batches), bound)
        });
        let mut survey = Survey {
            bounds: shapes.collect(),
            seen: BTreeSet::new(),
            best: None,
            below,
            rest: self.left / 2,
        };
        let orders = &self.request.orders;
        // A schedule that is made for each cut anew takes as much effort as many others.
        let given: Vec<usize> = (0..orders.len())
            .filter(|&order| orders[order].follow.is_none())
            .collect();
        let most = self.request.workers.len();
        let numbers: BTreeSet<usize> = self.request.micro_batches.iter().copied().collect();
        let doubled = std::iter::successors(Some(1_usize), |&workers| workers.checked_mul(2));
        let doubled = doubled.take_while(|&workers| workers < most);
        for workers in doubled.chain([most]) {
            let of_workers = PER_WORKER.map(|by| nearest(&numbers, by * workers));
            for micro_batches in BTreeSet::from(of_workers) {
                let liked = survey.best.as_ref().map(|best| best.shape.1);
                let all = [given.as_slice(), liked.as_slice()];
                let few = liked.is_none() || workers.saturating_mul(2 * micro_batches) <= FEW;
                for &order in all[usize::from(!few)] {
                    self.look(&mut survey, (workers, order, micro_batches))?;
                }
            }
        }
        while let Some(best) = &survey.best {
            let shape @ (workers, order, micro_batches) = best.shape;
            let other_orders = given.iter().map(|&order| (workers, order, micro_batches));
            let more = numbers.range(micro_batches + 1..).next();
            let fewer = numbers.range(..micro_batches).next_back();
            let other_numbers = [more, fewer].into_iter().flatten();
            let other_numbers = other_numbers.map(|&number| (workers, order, number));
            let other_workers = [1, 2, 4].into_iter().flat_map(|part| {
                let by = workers / (4 * part);
                [workers + by, workers - by]
            });
            let other_workers = other_workers.map(|workers| (workers, order, micro_batches));
            let near = other_orders.chain(other_numbers).chain(other_workers);
            for near in near.collect::<Vec<_>>() {
                self.look(&mut survey, near)?;
            }
            if survey.best.as_ref().is_none_or(|best| best.shape == shape) {
                break;
            }
        }
        Ok(survey.best.map(|best| (best.candidate, best.found)))
    }

    /// Looks at the first cuts of a shape, if it may be better than the best and there is effort left.
    fn look(&mut self, survey: &mut Survey<'a>, shape: Shape) -> Result<()> {
        let (workers, order, micro_batches) = shape;
        let seconds = survey.seconds();
        let is_open = survey.bounds.get(&shape);
        let is_open = is_open.is_some_and(|&bound| bound < seconds * (1.0 - EQUAL));
        if !is_open || self.left <= survey.rest || !survey.seen.insert(shape) {
            return Ok(());
        }
        let Some(candidate) = self.candidate(order, workers, micro_batches)? else {
            return Ok(());
        };
        // At least one plan is looked at.
        if survey.best.is_some() && candidate.actions() > self.left - survey.rest {
            return Ok(());
        }
        let found = cuts::start(&candidate, None, &mut self.left);
        if let Some(found) = found.filter(|found| found.seconds < seconds * (1.0 - EQUAL)) {
            survey.best = Some(Sight {
                shape,
                candidate,
                found,
            });
        }
        Ok(())
    }
}

impl Survey<'_> {
    /// What a plan must take less than.
    fn seconds(&self) -> f64 {
        self.best
            .as_ref()
            .map_or(self.below, |best| best.found.seconds)
    }
}

/// The nearest of these numbers, by ratio; the larger one of two.
fn nearest(numbers: &BTreeSet<usize>, wanted: usize) -> usize {
    let above = numbers.range(wanted..).next().copied();
    let below = numbers.range(..wanted).next_back().copied();
    match (below, above) {
        (Some(below), Some(above)) if wanted.pow(2) < below * above => below,
        (below, above) => above.or(below).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_number_is_so_by_ratio() {
        let numbers = BTreeSet::from([1, 4, 6, 64]);
        let found = [1, 2, 3, 5, 16, 20, 1000].map(|wanted| nearest(&numbers, wanted));
        assert_eq!(found, [1, 4, 4, 6, 6, 64, 64]);
    }
}
