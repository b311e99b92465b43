//! The simulator: runs a schedule under given costs.

use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::schedule::walk::walk;
use crate::simulate::costs::{Costs, LinkCosts, PortalCosts};
use crate::simulate::costs_error::CostsError;
use crate::simulate::timeline::{Span, Timeline};

/// Simulates a schedule: each action starts as soon as its device is free and the flow that it
/// takes has arrived.
///
/// Linear in the number of actions: lanes are fixed lists, so the start of an action is a longest
/// path, found in one walk without an event queue.
///
/// # Errors
/// If the costs do not fit the schedule, or are negative or not finite.
pub fn simulate(schedule: &Schedule, costs: &Costs) -> Result<Timeline, CostsError> {
    costs.check(schedule)?;
    let (mut recomputed, mut links) = (Recomputed::new(schedule), Links::new(schedule, costs));
    let (device_of, micro_batches) = (schedule.device_of(), schedule.micro_batches());
    let timing = Timing {
        work: |action: Action| {
            let (device, has_recompute) = (device_of[action.stage], recomputed.pass(action));
            costs.seconds(device, action, has_recompute, micro_batches)
        },
        transfer: |from: usize, transfer: Transfer, end: f64| links.arrival(from, transfer, end),
    };
    let portals = costs.portals().iter().map(|portal| portal.portal);
    Ok(timing.run(schedule).with_portals(portals))
}

/// Seconds of a whole step: the makespan plus the parameter update. The update starts when all
/// gradients are complete, because clipping needs their common norm, and ends with the slowest
/// device.
///
/// # Errors
/// If the costs do not fit the schedule, or are negative or not finite.
pub fn step_seconds(schedule: &Schedule, costs: &Costs) -> Result<f64, CostsError> {
    Ok(simulate(schedule, costs)?.makespan() + costs.update(schedule))
}

/// The micro-batches that each stage has recomputed so far, updated in lane order.
pub(crate) struct Recomputed {
    micro_batches: usize,
    ahead: Vec<bool>,
}

impl Recomputed {
    pub fn new(schedule: &Schedule) -> Self {
        let micro_batches = schedule.micro_batches();
        Self {
            micro_batches,
            ahead: vec![false; schedule.stages() * micro_batches],
        }
    }

    /// Records an action; returns whether an `R` preceded it.
    pub fn pass(&mut self, action: Action) -> bool {
        let ahead = &mut self.ahead[action.stage * self.micro_batches + action.micro_batch];
        let has_recompute = *ahead;
        *ahead |= action.op == Op::Recompute;
        has_recompute
    }
}

/// Arrival times of flows; queried in the order in which each link is used.
pub(crate) struct Links<'a> {
    costs: &'a Costs,
    /// The time from which each link is free, by direction.
    free: Vec<[f64; 2]>,
    /// The same for the link of each portal.
    free_portals: Vec<[f64; 2]>,
    /// When everything that comes through portals beside a flow has arrived.
    through_portals: Vec<f64>,
    micro_batches: usize,
}

impl<'a> Links<'a> {
    pub fn new(schedule: &Schedule, costs: &'a Costs) -> Self {
        let micro_batches = schedule.micro_batches();
        let transfers = Transfer::table(schedule.stages(), micro_batches);
        Self {
            costs,
            free: vec![[0.0; 2]; schedule.stages()],
            free_portals: vec![[0.0; 2]; costs.portals().len()],
            through_portals: match costs.portals().is_empty() {
                true => Vec::new(),
                false => vec![0.0; transfers],
            },
            micro_batches,
        }
    }

    /// The arrival time of a flow that the stage `from` sends at time `end`, and of what comes through
    /// portals beside it.
    pub fn arrival(&mut self, from: usize, transfer: Transfer, end: f64) -> f64 {
        if from == transfer.stage {
            return end;
        }
        let (direction, m) = (transfer.direction, transfer.micro_batch);
        let size = self.costs.size(m);
        let arrives = |free: &mut f64, link: LinkCosts| {
            let seconds = match direction {
                Direction::Forward => link.forward,
                Direction::Backward => link.backward,
            };
            *free = free.max(end) + seconds * size;
            *free + link.latency
        };
        for (PortalCosts { portal, link }, free) in
            self.costs.portals().iter().zip(&mut self.free_portals)
        {
            if portal.sender(direction) == from {
                let taken = portal.arrives(direction, m).index(self.micro_batches);
                let arrival = arrives(&mut free[direction as usize], *link);
                self.through_portals[taken] = self.through_portals[taken].max(arrival);
            }
        }
        let link = from.min(transfer.stage);
        let arrival = arrives(
            &mut self.free[link][direction as usize],
            self.costs.link(link),
        );
        let beside = self.through_portals.get(transfer.index(self.micro_batches));
        arrival.max(beside.copied().unwrap_or(0.0))
    }
}

/// Simulates a schedule in which an operation takes the same time on every stage, and transfers
/// none.
pub(crate) fn simulate_even(schedule: &Schedule, seconds: impl Fn(Op) -> f64) -> Timeline {
    Timing {
        work: |action: Action| seconds(action.op),
        transfer: |_, _, end| end,
    }
    .run(schedule)
}

struct Timing<W, C> {
    /// Seconds of an action; called in lane order.
    work: W,
    /// The arrival time of a flow that a stage sends at a given time.
    transfer: C,
}

impl<W: FnMut(Action) -> f64, C: FnMut(usize, Transfer, f64) -> f64> Timing<W, C> {
    fn run(mut self, schedule: &Schedule) -> Timeline {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let lanes = schedule.lanes();
        let mut arrivals = vec![0.0_f64; Transfer::table(stages, micro_batches)];
        let mut now = vec![0.0_f64; lanes.len()];
        let mut firsts = Vec::with_capacity(lanes.len());
        let mut spans = Vec::with_capacity(lanes.iter().map(Vec::len).sum());
        for (device, lane) in lanes.iter().enumerate() {
            firsts.push(spans.len());
            spans.extend(lane.iter().map(|&action| Span {
                device,
                action,
                ready: 0.0,
                start: 0.0,
                end: 0.0,
            }));
        }
        let walked = walk(
            schedule.device_of(),
            micro_batches,
            lanes,
            |device, position, action| {
                let arrival = action
                    .receives()
                    .map_or(0.0, |transfer| arrivals[transfer.index(micro_batches)]);
                let span = &mut spans[firsts[device] + position];
                span.ready = now[device].max(arrival);
                span.start = span.ready;
                span.end = span.start + (self.work)(action);
                now[device] = span.end;
                if let Some(transfer) = action.sends(stages) {
                    arrivals[transfer.index(micro_batches)] =
                        (self.transfer)(action.stage, transfer, span.end);
                }
            },
        );
        debug_assert!(walked.is_ok(), "a schedule that exists has no deadlock");
        Timeline::new(lanes.len(), spans)
    }
}
