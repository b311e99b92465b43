//! The search over schedules, numbers of workers and of micro-batches, from the lowest bound up.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use super::bound::Bounds;
use super::candidate::{Candidate, Found};
use super::cuts;
use super::plan::{CertifiedPlan, Plan};
use super::relaxation::Relaxed;
use super::request::{Costed, PlanRequest, check_cut, fault};
use crate::Result;

/// The most actions simulated for one plan. Candidates left over keep their bound.
pub(super) const ACTIONS: u64 = 20_000_000;

/// The most actions visited for the tight bounds of one plan. Candidates left over keep a simpler bound.
const EFFORT: u64 = 60_000_000;

/// With less effort left, no tight bound is sought.
const LEAST_EFFORT: u64 = 1_000_000;

/// Rounds of a bound that may rule a candidate out, and of one that is part of a certificate.
const FEW_ROUNDS: usize = 12;
pub(super) const MANY_ROUNDS: usize = 400;

/// The most cuts that are improved though they are slower than another at first.
const PROMISING: usize = 32;

/// Times closer than this share are equal.
pub(super) const EQUAL: f64 = 1e-10;

/// The part of a plan's effort that may improve a cut before others were looked at.
const CLIMB_PART: u64 = 16;

/// A candidate that is not looked at yet: its bound, number of workers, kind of schedule and number of micro-batches.
pub(super) type Open = (f64, usize, usize, usize);

/// Plans for one model and its workers.
pub struct Planner<'a> {
    pub(super) request: &'a PlanRequest<'a>,
    costed: BTreeMap<usize, Rc<Costed>>,
    pub(super) left: u64,
    /// How many plans share the effort of bounds.
    pub(super) sharing: u64,
}

impl fmt::Debug for Planner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl<'a> Planner<'a> {
    /// A planner for a request that is consistent.
    ///
    /// # Errors
    /// If there is no layer, no worker or no order, an order has no stages on a worker, or a number is negative, infinite
    /// or NaN.
    pub fn new(request: &'a PlanRequest<'a>) -> Result<Self> {
        request.check()?;
        Ok(Self {
            request,
            costed: BTreeMap::new(),
            left: ACTIONS,
            sharing: 1,
        })
    }

    /// The plan to use.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`](crate::Error::DoesNotFit) with the bytes that would suffice, if nothing fits.
    pub fn answer(mut self) -> Result<CertifiedPlan> {
        let found = self.best(|_, _| true, f64::INFINITY)?;
        let Some((plan, bound)) = found else {
            return Err(self.does_not_fit()?);
        };
        let fastest = plan.seconds;
        let plan = self.simplest(plan)?;
        let single = match plan.workers.len() {
            1 => Some(plan.seconds),
            _ => self.single()?,
        };
        let replicas = match single {
            Some(_) => self.replicas()?,
            None => None,
        };
        let with_more = self.with_more(&plan)?;
        Ok(CertifiedPlan {
            plan,
            fastest,
            bound,
            single,
            replicas,
            with_more,
            alternatives: Vec::new(),
        })
    }

    /// Whether some plan on all workers fits their memory, as far as few tries tell.
    ///
    /// # Errors
    /// As [`answer`](Self::answer), but for the lack of a plan.
    pub fn fits(&mut self) -> Result<bool> {
        let mut numbers = self.request.micro_batches.clone();
        numbers.sort_unstable();
        let workers = self.request.workers.len();
        for order in 0..self.request.orders.len() {
            // The smallest micro-batches need the fewest bytes.
            for &number in numbers.iter().rev().take(2) {
                let candidate = self.candidate(order, workers, number)?;
                let Some(candidate) = candidate else { continue };
                if cuts::first(&candidate, None, &mut self.left, f64::INFINITY).is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The best plan under one kind of schedule for a number of workers and of micro-batches, and the
    /// bound of all such plans; `None` if none fits.
    ///
    /// # Errors
    /// If the request has no such order or fewer workers, its schedule has another shape, or the model has no costs.
    pub fn under(
        &mut self,
        order: usize,
        workers: usize,
        micro_batches: usize,
    ) -> Result<Option<(Plan, f64)>> {
        let Some(candidate) = self.candidate(order, workers, micro_batches)? else {
            return Ok(None);
        };
        let found = cuts::search(&candidate, None, &mut self.left, f64::INFINITY);
        Ok(found.map(|found| {
            let bound = match found.exact {
                true => found.seconds,
                false => {
                    let relaxed = candidate.relaxed(&found.cut, found.seconds, MANY_ROUNDS);
                    relaxed.bound
                }
            };
            (candidate.plan(&found), bound)
        }))
    }

    /// The plan of a given cut, if it fits.
    ///
    /// # Errors
    /// If it is not a cut of the model's layers or does not fit the schedule, or as [`under`](Self::under).
    pub fn with_cut(
        &mut self,
        order: usize,
        workers: usize,
        micro_batches: usize,
        cut: &[Range<usize>],
    ) -> Result<Option<Plan>> {
        let Some(candidate) = self.candidate(order, workers, micro_batches)? else {
            return Ok(None);
        };
        check_cut(cut, candidate.layers())?;
        if cut.len() != candidate.stages() {
            return fault(format!(
                "a cut into {} parts for {} stages: give one for each",
                cut.len(),
                candidate.stages()
            ));
        }
        let workers: Vec<usize> = (0..workers).collect();
        Ok(candidate
            .evaluate(cut, &workers, &mut self.left)
            .map(|found| candidate.plan(&found)))
    }

    fn costed(&mut self, micro_batches: usize) -> Result<Rc<Costed>> {
        if let Some(costed) = self.costed.get(&micro_batches) {
            return Ok(costed.clone());
        }
        let costed = Rc::new(self.request.costed(micro_batches)?);
        self.costed.insert(micro_batches, costed.clone());
        Ok(costed)
    }

    /// Whether there are as many layers, and no other number of stages is asked for.
    pub(super) fn is_possible(&self, stages: usize) -> bool {
        let cut = self.request.cut.as_ref().map(Vec::len);
        let given = self.request.stages.or(cut);
        stages <= self.request.weights.layers() && given.is_none_or(|given| given == stages)
    }

    /// `None` where there are fewer layers than stages, or no schedule of that shape is asked for.
    pub(super) fn candidate(
        &mut self,
        order: usize,
        workers: usize,
        micro_batches: usize,
    ) -> Result<Option<Candidate<'a>>> {
        let order = self.request.order(order, workers)?;
        if !self.is_possible(workers.saturating_mul(order.chunks)) {
            return Ok(None);
        }
        let costed = self.costed(micro_batches)?;
        let schedule = order.schedule(workers, micro_batches)?;
        Ok(schedule.map(|schedule| Candidate::new(self.request, order, schedule.into(), costed)))
    }

    /// The best plan of less than `below` seconds among the numbers of workers and of stages per worker
    /// that `is_asked` accepts, and the bound of all of them.
    pub(super) fn best(
        &mut self,
        is_asked: impl Fn(usize, usize) -> bool,
        below: f64,
    ) -> Result<Option<(Plan, f64)>> {
        let request = self.request;
        let fewest = request.fewest_workers().unwrap_or(usize::MAX);
        let mut open = Vec::new();
        for &micro_batches in &request.micro_batches {
            let costed = self.costed(micro_batches)?;
            let bounds = Bounds::new(request, &costed);
            let mut known = BTreeMap::new();
            for (index, order) in request.orders.iter().enumerate() {
                for workers in fewest..=request.workers.len() {
                    let stages = workers.saturating_mul(order.chunks);
                    if !self.is_possible(stages) || !is_asked(workers, order.chunks) {
                        continue;
                    }
                    let bound = known
                        .entry((workers, order.chunks))
                        .or_insert_with(|| bounds.of(workers, order.chunks));
                    open.push((*bound, workers, index, micro_batches));
                }
            }
        }
        // Of equal bounds, fewer workers first, then more micro-batches, which wait less for each other,
        // then fewer stages.
        let chunks = |order: usize| request.orders[order].chunks;
        open.sort_by(|a, b| {
            let by_bound = a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
            by_bound
                .then(b.3.cmp(&a.3))
                .then(chunks(a.2).cmp(&chunks(b.2)))
        });
        let climbed = self.left / CLIMB_PART;
        let mut best = match self.is_too_much(&open) {
            true => self.survey(&open, below)?,
            false => None,
        };
        // Whether the best cut could still be improved by more effort.
        let mut is_cut_short = false;
        if let Some((candidate, found)) = &mut best {
            is_cut_short = self.climb(candidate, found, climbed);
        }
        let mut looked_at = EFFORT / self.sharing;
        // Candidates with a cut that is nearly as fast as the best.
        let mut promising: Vec<(Candidate<'_>, Found)> = Vec::new();
        // Candidates for which a better plan may have been overlooked.
        let mut doubtful = Vec::new();
        for (least, workers, order, micro_batches) in open {
            let seconds = (best.as_ref()).map_or(below, |(_, found)| found.seconds);
            if least >= seconds * (1.0 - EQUAL) {
                break;
            }
            if self.left == 0 && looked_at < LEAST_EFFORT && best.is_some() {
                doubtful.push((least, (workers, order, micro_batches)));
                continue;
            }
            let Some(candidate) = self.candidate(order, workers, micro_batches)? else {
                continue;
            };
            let start = cuts::balanced(&candidate);
            let relaxed = relax(
                &candidate,
                start.as_deref(),
                seconds,
                FEW_ROUNDS,
                &mut looked_at,
            );
            let bound = relaxed.as_ref().map_or(least, |relaxed| relaxed.bound);
            if bound >= seconds * (1.0 - EQUAL) {
                continue;
            }
            if self.left == 0 && best.is_some() {
                doubtful.push((bound, (workers, order, micro_batches)));
                continue;
            }
            let near = relaxed.and_then(|relaxed| relaxed.cut);
            let found = cuts::first(&candidate, near, &mut self.left, seconds);
            let is_exact = found.as_ref().is_some_and(|found| found.exact);
            if !(is_exact || cuts::is_small(&candidate)) {
                doubtful.push((bound, (workers, order, micro_batches)));
            }
            let Some(mut found) = found else { continue };
            // A search that is not exhaustive may return a cut that is not better.
            if found.seconds < seconds * (1.0 - EQUAL) {
                is_cut_short = !found.exact && self.climb(&candidate, &mut found, climbed);
                best = Some((candidate, found));
            } else if !found.exact && found.seconds < cuts::FAR * seconds {
                let place = promising.partition_point(|(_, a)| a.seconds <= found.seconds);
                promising.insert(place, (candidate, found));
                promising.truncate(PROMISING);
            }
        }
        if let Some((candidate, found)) = &mut best
            && is_cut_short
        {
            cuts::climb(candidate, found, &mut self.left);
        }
        for (candidate, mut found) in promising {
            if self.left == 0 {
                break;
            }
            cuts::climb(&candidate, &mut found, &mut self.left);
            let seconds = (best.as_ref()).map_or(below, |(_, found)| found.seconds);
            if found.seconds < seconds * (1.0 - EQUAL) {
                best = Some((candidate, found));
            }
        }
        let Some((candidate, found)) = best else {
            return Ok(None);
        };
        let bound = self.certify(found.seconds, doubtful)?;
        Ok(Some((candidate.plan(&found), bound)))
    }

    /// Improves a cut with at most this much effort; whether that was too little.
    fn climb(&mut self, candidate: &Candidate<'_>, found: &mut Found, effort: u64) -> bool {
        let mut part = self.left.min(effort);
        self.left -= part;
        cuts::climb(candidate, found, &mut part);
        self.left += part;
        part < candidate.actions()
    }
}

/// A tighter bound, if there is a cut to begin with and the effort `left` suffices.
pub(super) fn relax(
    candidate: &Candidate<'_>,
    start: Option<&[Range<usize>]>,
    below: f64,
    rounds: usize,
    left: &mut u64,
) -> Option<Relaxed> {
    let effort = candidate.effort() * rounds as u64;
    if *left < effort {
        return None;
    }
    let relaxed = candidate.relaxed(start?, below, rounds);
    *left -= candidate.effort() * relaxed.rounds as u64;
    Some(relaxed)
}
