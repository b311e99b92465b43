//! The simulator for devices that share fewer processors.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::costs::{Costs, CostsError};
use crate::simulate::simulator::{Links, Recomputed, simulate};
use crate::simulate::timeline::{Span, Timeline};

/// [`simulate`] for devices that share `processors`: at most that many actions run at a time, and a
/// ready one queues for a processor, as workers do on the cores of one machine.
///
/// Running actions share the processors evenly at all times; the remainder of the division goes to
/// those that have run for the longest time. `by_share[n − 1]` holds the costs with `n` processors;
/// more than are listed bring no further speed-up.
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
    /// Its processors; 0 before the first assignment.
    share: usize,
    /// Seconds of the whole action on those.
    seconds: f64,
    /// Its end if the assignment stays as it is.
    end: f64,
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

    /// The next time at which an action ends or a device becomes ready.
    fn next_moment(&self) -> Option<f64> {
        let ends = self.running.iter().map(|running| running.end);
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
            self.running.push(Running {
                span: self.spans.len(),
                has_recompute: self.recomputed.pass(action),
                share: 0,
                seconds: 0.0,
                end: now,
            });
            self.spans.push(Span {
                device,
                action,
                ready,
                start: now,
                end: now,
            });
            self.share_out(now);
        }
    }

    /// Assigns the processors to the running actions. An action whose number changes does the rest
    /// of its work at the new speed.
    fn share_out(&mut self, now: f64) {
        let count = self.running.len();
        for place in 0..count {
            let more = usize::from(place < self.processors % count);
            let share = (self.processors / count + more).min(self.by_share.len());
            let running = &self.running[place];
            if share == running.share {
                continue;
            }
            let Span { device, action, .. } = self.spans[running.span];
            let (costs, micro_batches) = (&self.by_share[share - 1], self.schedule.micro_batches());
            let seconds = costs.seconds(device, action, running.has_recompute, micro_batches);
            let running = &mut self.running[place];
            let left = match running.share {
                0 => 1.0,
                _ if running.seconds > 0.0 => ((running.end - now) / running.seconds).max(0.0),
                _ => 0.0,
            };
            running.end = now + seconds * left;
            (running.share, running.seconds) = (share, seconds);
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
        if done.is_empty() {
            return;
        }
        self.share_out(now);
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
