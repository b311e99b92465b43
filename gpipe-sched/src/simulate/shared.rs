//! The simulator for devices that share fewer processors.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::costs::Costs;
use crate::simulate::costs_error::CostsError;
use crate::simulate::simulator::{Links, Recomputed, simulate};
use crate::simulate::timeline::{Span, Timeline};

/// [`simulate`] for devices that share `processors`: at most that many actions run at a time, and a
/// ready one queues for a processor, as workers do on the cores of one machine.
///
/// Running actions share the processors evenly; the remainder of the division goes to those that have
/// run for the longest time. `by_share[n − 1]` holds the costs with `n` processors; more than are
/// listed bring no further speed-up. No processors count as one.
///
/// An action begins with its share. When the share changes, the action takes or gives up processors at
/// once, or, if the costs have operations ([`Costs::with_operations`]), at the end of its operation.
/// Until then a processor that was freed may be idle, and one that another action was given computes
/// for both: all threads that run then are slowed down alike.
///
/// # Errors
/// As [`simulate`], or if `by_share` is empty.
pub fn simulate_shared(
    schedule: &Schedule,
    by_share: &[Costs],
    processors: usize,
) -> Result<Timeline, CostsError> {
    match by_share {
        [] => {
            return Err(CostsError::Count {
                what: "shares of the processors",
                found: 0,
                expected: 1,
            });
        }
        [alone] if processors >= schedule.devices() => return simulate(schedule, alone),
        _ => {}
    }
    for costs in by_share {
        costs.check(schedule)?;
    }
    let mut machine = Machine::new(schedule, by_share, processors.max(1));
    for device in 0..schedule.devices() {
        machine.go_on(device, 0.0);
    }
    while let Some(now) = machine.next_moment() {
        machine.end(now);
        machine.line_up(now);
        machine.begin(now);
        machine.share_out(now);
    }
    let portals = by_share[0].portals().iter().map(|portal| portal.portal);
    Ok(Timeline::new(schedule.devices(), machine.spans).with_portals(portals))
}

/// The state of all devices at a time.
struct Machine<'a> {
    schedule: &'a Schedule,
    processors: usize,
    /// Costs by number of processors of an action.
    by_share: &'a [Costs],
    recomputed: Recomputed,
    links: Links<'a>,
    /// Devices that become ready, and when.
    events: BinaryHeap<Reverse<Ready>>,
    /// Ready devices, and since when.
    line: VecDeque<(usize, f64)>,
    /// At most one action per processor, in order of start.
    running: Vec<Running>,
    positions: Vec<usize>,
    /// Whether a device waits for a flow that has not been sent yet.
    waits: Vec<bool>,
    arrivals: Vec<Option<f64>>,
    spans: Vec<Span>,
}

/// An action that has started.
struct Running {
    span: usize,
    /// Whether an `R` preceded it.
    has_recompute: bool,
    /// The number of its operations, all equally long; `None` if it takes a new share at once.
    operations: Option<f64>,
    /// The processors of its operation; 0 before the first.
    threads: usize,
    /// Seconds of the whole action at its speed of now.
    seconds: f64,
    /// Its end at that speed.
    end: f64,
    /// When it takes its new share; infinite if it has it, or ends before.
    change: f64,
}

impl Running {
    /// Goes on at another speed: `seconds` for the whole action.
    fn set_seconds(&mut self, seconds: f64, now: f64, is_new: bool) {
        if !is_new && seconds == self.seconds {
            return;
        }
        let left = match is_new {
            true => 1.0,
            false => self.left(now),
        };
        self.end = now + seconds * left;
        self.seconds = seconds;
    }

    /// The part that is not done yet.
    fn left(&self, now: f64) -> f64 {
        match self.seconds > 0.0 {
            true => ((self.end - now) / self.seconds).max(0.0),
            false => 0.0,
        }
    }

    /// The end of its operation, at its speed of now; infinite if it is the last.
    fn end_of_operation(&self, now: f64) -> f64 {
        /// Of an operation: what is nearer to its end is at the beginning of the next.
        const NEAR: f64 = 1e-9;
        let Some(operations) = self.operations else {
            return now;
        };
        let done = (1.0 - self.left(now)) * operations;
        let next = (done + NEAR).floor() + 1.0;
        match next < operations - NEAR {
            true => (self.end - (1.0 - next / operations) * self.seconds).max(now),
            false => f64::INFINITY,
        }
    }
}

impl<'a> Machine<'a> {
    fn new(schedule: &'a Schedule, by_share: &'a [Costs], processors: usize) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let mut arrivals = vec![None; Transfer::table(stages, micro_batches)];
        for m in 0..micro_batches {
            arrivals[Transfer::new(Direction::Forward, 0, m).index(micro_batches)] = Some(0.0);
        }
        Self {
            schedule,
            processors,
            by_share,
            recomputed: Recomputed::new(schedule),
            links: Links::new(schedule, &by_share[0]),
            events: BinaryHeap::new(),
            line: VecDeque::new(),
            running: Vec::new(),
            positions: vec![0; schedule.devices()],
            waits: vec![false; schedule.devices()],
            arrivals,
            spans: Vec::with_capacity(schedule.lanes().iter().map(Vec::len).sum()),
        }
    }

    fn next(&self, device: usize) -> Option<Action> {
        let lane = &self.schedule.lanes()[device];
        lane.get(self.positions[device]).copied()
    }

    /// The next time at which an action ends or takes a new share, or a device becomes ready.
    fn next_moment(&self) -> Option<f64> {
        let ends = self.running.iter();
        let ends = ends.map(|running| running.end.min(running.change));
        let ready = self.events.peek().map(|Reverse(event)| event.time);
        ends.chain(ready).reduce(f64::min)
    }

    /// Moves a free device on to its next action.
    fn go_on(&mut self, device: usize, now: f64) {
        let Some(action) = self.next(device) else {
            return;
        };
        let transfer = action.receives();
        let arrival = transfer.map_or(Some(now), |transfer| {
            self.arrivals[transfer.index(self.schedule.micro_batches())]
        });
        match arrival {
            Some(arrival) => self.ready(device, now.max(arrival), arrival > now),
            None => self.waits[device] = true,
        }
    }

    fn ready(&mut self, device: usize, time: f64, is_woken: bool) {
        self.events.push(Reverse(Ready {
            time,
            is_woken,
            device,
        }));
    }

    /// Queues the devices that are ready now.
    fn line_up(&mut self, now: f64) {
        while let Some(Reverse(event)) = self.events.peek()
            && event.time <= now
        {
            self.line.push_back((event.device, event.time));
            self.events.pop();
        }
    }

    /// Starts actions on the free processors, the longest-waiting first.
    fn begin(&mut self, now: f64) {
        while self.running.len() < self.processors
            && let Some((device, ready)) = self.line.pop_front()
        {
            let Some(action) = self.next(device) else {
                continue;
            };
            self.positions[device] += 1;
            let has_recompute = self.recomputed.pass(action);
            let (alone, micro_batches) = (&self.by_share[0], self.schedule.micro_batches());
            self.running.push(Running {
                span: self.spans.len(),
                has_recompute,
                operations: alone.operations(device, action, has_recompute, micro_batches),
                threads: 0,
                seconds: 0.0,
                end: now,
                change: f64::INFINITY,
            });
            self.spans.push(Span {
                device,
                action,
                ready,
                start: now,
                end: now,
            });
        }
    }

    /// Assigns the processors to the running actions. Those that begin or are at the end of an operation
    /// take their share; the others do so at the end of theirs.
    fn share_out(&mut self, now: f64) {
        let count = self.running.len();
        let most = self.by_share.len();
        let shares = |place: usize| {
            let more = usize::from(place < self.processors % count);
            (self.processors / count + more).min(most)
        };
        let shares: Vec<usize> = (0..count).map(shares).collect();
        let before: Vec<usize> = self.running.iter().map(|running| running.threads).collect();
        for (running, &share) in self.running.iter_mut().zip(&shares) {
            let at_once = running.operations.is_none() || running.threads == 0;
            if at_once || running.change <= now {
                running.threads = share;
            }
        }
        // The threads of operations that have not given up theirs yet compete for the processors.
        let threads: usize = self.running.iter().map(|running| running.threads).sum();
        let slowness = (threads as f64 / self.processors as f64).max(1.0);
        for ((running, &share), before) in self.running.iter_mut().zip(&shares).zip(before) {
            let Span { device, action, .. } = self.spans[running.span];
            let costs = &self.by_share[running.threads - 1];
            let micro_batches = self.schedule.micro_batches();
            let seconds = costs.seconds(device, action, running.has_recompute, micro_batches);
            running.set_seconds(seconds * slowness, now, before == 0);
            running.change = match running.threads == share {
                true => f64::INFINITY,
                false => running.end_of_operation(now),
            };
        }
    }

    /// Ends the actions that are due.
    fn end(&mut self, now: f64) {
        let mut done: Vec<usize> = Vec::new();
        self.running.retain(|running| {
            let ends = running.end <= now;
            if ends {
                done.push(running.span);
            }
            !ends
        });
        for span in done {
            self.spans[span].end = now;
            let Span { device, action, .. } = self.spans[span];
            self.hand_on(action, now);
            self.go_on(device, now);
        }
    }

    /// Sends the flow of an action.
    fn hand_on(&mut self, action: Action, now: f64) {
        let Some(transfer) = action.sends(self.schedule.stages()) else {
            return;
        };
        let arrival = self.links.arrival(action.stage, transfer, now);
        self.arrivals[transfer.index(self.schedule.micro_batches())] = Some(arrival);
        let taker = self.schedule.device_of()[transfer.stage];
        let awaited = self.next(taker).and_then(Action::receives) == Some(transfer);
        if self.waits[taker] && awaited {
            self.waits[taker] = false;
            self.ready(taker, arrival, true);
        }
    }
}

/// A device that becomes ready at a time. Ties go to devices that were busy until then, before
/// those that have to wake up: they take the free processors.
struct Ready {
    time: f64,
    is_woken: bool,
    device: usize,
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.time.total_cmp(&other.time);
        by_time
            .then(self.is_woken.cmp(&other.is_woken))
            .then(self.device.cmp(&other.device))
    }
}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ready {}
