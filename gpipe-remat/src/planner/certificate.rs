//! The certificate: a lower bound of the time of every plan.

use std::ops::Range;

use super::cuts;
use super::relaxation::Relaxed;
use super::search::{MANY_ROUNDS, Planner, relax};
use crate::Result;

/// The most actions visited for one certificate.
const EFFORT: u64 = 300_000_000;

/// Rounds of the first attempt at a tighter bound; each later one has twice as many.
const FIRST_ROUNDS: usize = 50;

/// Numbers of workers, of the kind of schedule, and of micro-batches.
pub(super) type Shape = (usize, usize, usize);

/// A candidate whose bound is below the time of the plan.
struct Doubt {
    bound: f64,
    shape: Shape,
    /// Rounds of the next attempt at a tighter bound, and the cut that it begins with.
    rounds: usize,
    start: Option<Vec<Range<usize>>>,
}

impl Planner<'_> {
    /// The least time of any plan, at most that of the one found: the least bound of the candidates for
    /// which a better plan may have been overlooked. The faster the one found is, the tighter these are.
    pub(super) fn certify(&mut self, found: f64, doubtful: Vec<(f64, Shape)>) -> Result<f64> {
        let mut looked_at = EFFORT / self.sharing;
        let mut open: Vec<Doubt> = (doubtful.into_iter())
            .filter(|(bound, _)| *bound < found)
            .map(|(bound, shape)| Doubt {
                bound,
                shape,
                rounds: FIRST_ROUNDS,
                start: None,
            })
            .collect();
        // The least bound is the certificate: work goes into that one, until it is no longer the least.
        loop {
            let loosest = (0..open.len()).min_by(|&a, &b| open[a].bound.total_cmp(&open[b].bound));
            let Some(loosest) = loosest else {
                return Ok(found);
            };
            let Doubt {
                bound,
                shape: (workers, order, micro_batches),
                rounds,
                start,
            } = open.swap_remove(loosest);
            let Some(other) = self.candidate(order, workers, micro_batches)? else {
                continue;
            };
            let start = start.or_else(|| cuts::balanced(&other));
            let tight = relax(&other, start.as_deref(), found, rounds, &mut looked_at);
            let Some(Relaxed {
                bound: tight, cut, ..
            }) = tight
            else {
                return Ok(bound);
            };
            let tight = tight.max(bound);
            if tight >= found {
                continue;
            }
            let is_least = open.iter().all(|other| other.bound >= tight);
            if is_least && (rounds == MANY_ROUNDS || cut.is_none()) {
                return Ok(tight);
            }
            open.push(Doubt {
                bound: tight,
                shape: (workers, order, micro_batches),
                rounds: (2 * rounds).min(MANY_ROUNDS),
                start: cut,
            });
        }
    }
}
