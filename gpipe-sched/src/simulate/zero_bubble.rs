//! A schedule for given costs, by greedy search.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::alternating::one_f_one_b;
use crate::schedule::builders::split::split;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;
use crate::simulate::costs::Costs;
use crate::simulate::costs_error::CostsError;
use crate::simulate::simulator::simulate;

/// Failure to build a schedule for given costs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ZeroBubbleError {
    /// The sizes are not those of a schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The costs do not fit the sizes, or are not durations.
    #[error(transparent)]
    Costs(#[from] CostsError),
}

/// One stage per device, in the fastest order that a greedy search finds for these `costs`, where
/// stage `s` holds at most `held(s)` micro-batches (1 where that is 0).
///
/// Qi et al. 2023 (section 3.1) order forward passes, input and weight gradients by what they cost,
/// under a memory limit. Here a free device runs an input gradient or a forward pass that is ready,
/// and otherwise a weight gradient, unless what it waits for arrives before that would end. Several
/// preferences between the first two and several limits of the wait are tried, and besides them
/// 1F1B and [`zb_h1`](crate::zb_h1) to [`zb_h2`](crate::zb_h2). [`simulate`] picks the fastest
/// within the memory limit. So the schedule is never slower than 1F1B with the same costs, wherever
/// 1F1B is within the limit itself.
///
/// ```
/// use gpipe_sched::{Costs, StageCosts, one_f_one_b, simulate, zero_bubble};
///
/// let stage = |forward| StageCosts { forward, input_grad: 2.0, weight_grad: 1.0, recompute: 0.0 };
/// let costs = Costs::new(vec![stage(1.0), stage(3.0), stage(2.0)]);
/// let schedule = zero_bubble(3, 8, &costs, |_stage| 3)?;
/// let seconds = |schedule| simulate(&schedule, &costs).map(|timeline| timeline.makespan());
/// assert!(seconds(schedule)? < seconds(one_f_one_b(3, 8)?)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If there is no stage or no micro-batch, or more than a schedule can have, or the costs do not fit.
pub fn zero_bubble(
    stages: usize,
    micro_batches: usize,
    costs: &Costs,
    held: impl Fn(usize) -> usize,
) -> Result<Schedule, ZeroBubbleError> {
    let alternating = one_f_one_b(stages, micro_batches)?;
    costs.check(&alternating)?;
    let held: Vec<usize> = (0..stages)
        .map(|stage| held(stage).clamp(1, micro_batches))
        .collect();
    let least = held.iter().copied().min().unwrap_or(1);
    let mut candidates = vec![alternating];
    for live in [stages, least.min(2 * stages - 1)] {
        candidates.push(split(stages, micro_batches, live.max(stages))?);
    }
    let fits = |schedule: &Schedule| (0..stages).all(|s| schedule.live(s) <= held[s]);
    candidates.retain(fits);
    for back_first in [true, false] {
        for patience in [0.0, 0.5, 1.0] {
            let rules = Rules {
                back_first,
                patience,
            };
            let lanes = Greedy::new(stages, micro_batches, costs, &held).run(&rules);
            candidates.push(Schedule::new((0..stages).collect(), micro_batches, lanes)?);
        }
    }
    // There is always one: results of the search are within the limit.
    let mut best = candidates.swap_remove(0);
    let mut least = simulate(&best, costs)?.makespan();
    for candidate in candidates {
        let seconds = simulate(&candidate, costs)?.makespan();
        if seconds < least {
            (best, least) = (candidate, seconds);
        }
    }
    Ok(best)
}

/// Preferences of the search.
struct Rules {
    /// Input gradients before forward passes where both are ready.
    back_first: bool,
    /// A weight gradient does not start if less than this share of it would be done when another
    /// action becomes ready.
    patience: f64,
}

/// The state of the search: devices, and flows in flight to them.
struct Greedy<'a> {
    micro_batches: usize,
    costs: &'a Costs,
    held: &'a [usize],
    stages: Vec<Progress>,
    /// Arrival times of the activations and the gradient of each micro-batch at each stage.
    arrivals: [Vec<f64>; 2],
    /// Times at which to look at a stage again.
    alarms: BinaryHeap<Alarm>,
}

/// The progress of a stage: micro-batches ascend.
#[derive(Clone, Default)]
struct Progress {
    free: f64,
    forward: usize,
    back: usize,
    done: usize,
    lane: Vec<Action>,
}

impl<'a> Greedy<'a> {
    fn new(stages: usize, micro_batches: usize, costs: &'a Costs, held: &'a [usize]) -> Self {
        let mut forward = vec![f64::INFINITY; stages * micro_batches];
        forward[..micro_batches].fill(0.0);
        Self {
            micro_batches,
            costs,
            held,
            stages: vec![Progress::default(); stages],
            arrivals: [forward, vec![f64::INFINITY; stages * micro_batches]],
            alarms: BinaryHeap::from([Alarm {
                time: 0.0,
                stage: 0,
            }]),
        }
    }

    fn run(mut self, rules: &Rules) -> Vec<Vec<Action>> {
        while let Some(Alarm { time, stage }) = self.alarms.pop() {
            if self.stages[stage].free > time {
                continue;
            }
            match self.choose(rules, stage, time) {
                Choice::Act(op) => self.act(stage, op, time),
                Choice::Wait(until) if until.is_finite() => self.wake(stage, until),
                // The sender of the awaited flow wakes it.
                Choice::Wait(_) => {}
            }
        }
        self.stages.into_iter().map(|stage| stage.lane).collect()
    }

    fn choose(&self, rules: &Rules, stage: usize, now: f64) -> Choice {
        let progress = &self.stages[stage];
        let arrival = |list: &[f64], m: usize| {
            if m < self.micro_batches {
                list[stage * self.micro_batches + m]
            } else {
                f64::INFINITY
            }
        };
        let room = progress.forward - progress.done < self.held[stage];
        let forward = if room {
            arrival(&self.arrivals[0], progress.forward)
        } else {
            f64::INFINITY
        };
        let back = arrival(&self.arrivals[1], progress.back);
        let both = [(back, Op::InputGrad), (forward, Op::Forward)];
        let order = if rules.back_first { [0, 1] } else { [1, 0] };
        if let Some(place) = order.into_iter().find(|&place| both[place].0 <= now) {
            return Choice::Act(both[place].1);
        }
        let next = back.min(forward);
        if progress.done < progress.back {
            let action = Action::new(stage, Op::WeightGrad, progress.done);
            let seconds = self.costs.seconds(stage, action, false, self.micro_batches);
            if now + rules.patience * seconds <= next {
                return Choice::Act(Op::WeightGrad);
            }
        }
        Choice::Wait(next)
    }

    fn act(&mut self, stage: usize, op: Op, now: f64) {
        let progress = &mut self.stages[stage];
        let next = match op {
            Op::Forward => &mut progress.forward,
            Op::InputGrad => &mut progress.back,
            _ => &mut progress.done,
        };
        let action = Action::new(stage, op, *next);
        *next += 1;
        progress.lane.push(action);
        progress.free = now + self.costs.seconds(stage, action, false, self.micro_batches);
        let end = progress.free;
        if let Some(transfer) = action.sends(self.stages.len()) {
            let arrival = if transfer.stage == stage {
                end
            } else {
                let link = self.costs.link(stage.min(transfer.stage));
                let seconds = [link.forward, link.backward][transfer.direction as usize];
                end + link.latency + seconds * self.costs.size(transfer.micro_batch)
            };
            let place = transfer.stage * self.micro_batches + transfer.micro_batch;
            self.arrivals[transfer.direction as usize][place] = arrival;
            self.wake(transfer.stage, arrival);
        }
        self.wake(stage, end);
    }

    fn wake(&mut self, stage: usize, time: f64) {
        let time = time.max(self.stages[stage].free);
        self.alarms.push(Alarm { time, stage });
    }
}

enum Choice {
    Act(Op),
    /// Idle until this time.
    Wait(f64),
}

/// Ordered so that the earliest is the greatest, which a max-heap returns first.
struct Alarm {
    time: f64,
    stage: usize,
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .time
            .total_cmp(&self.time)
            .then(other.stage.cmp(&self.stage))
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Alarm {}
