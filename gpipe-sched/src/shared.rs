//! When everything happens if the devices share fewer processors.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::hop::{Direction, Hop};
use crate::simulate::{Links, Work, simulate};
use crate::{Action, Costs, CostsError, Schedule, Span, Timeline};

/// [`simulate`] for devices that share `processors`: at most so many actions run at once, and one
/// that could begin waits in line for a processor. This is how workers run on the threads of one
/// machine.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_shared(
    schedule: &Schedule,
    costs: &Costs,
    processors: usize,
) -> Result<Timeline, CostsError> {
    if processors >= schedule.devices() {
        return simulate(schedule, costs);
    }
    costs.check(schedule)?;
    let mut machine = Machine::new(schedule, costs, processors.max(1));
    for device in 0..schedule.devices() {
        machine.go_on(device, 0.0);
    }
    while let Some(Reverse(event)) = machine.events.pop() {
        match event.what {
            What::Ready => machine.line.push_back((event.device, event.time)),
            What::Done(action) => machine.done(event.device, action, event.time),
        }
        machine.begin(event.time);
    }
    Ok(Timeline::new(schedule.devices(), machine.spans))
}

/// The devices at some moment.
struct Machine<'a> {
    schedule: &'a Schedule,
    work: Work<'a>,
    links: Links<'a>,
    events: BinaryHeap<Reverse<Event>>,
    /// Who could begin, and since when.
    line: VecDeque<(usize, f64)>,
    /// Processors that nobody uses.
    free: usize,
    positions: Vec<usize>,
    /// Whether a device waits for a flow that nobody has sent yet.
    waits: Vec<bool>,
    arrivals: Vec<Option<f64>>,
    spans: Vec<Span>,
}

impl<'a> Machine<'a> {
    fn new(schedule: &'a Schedule, costs: &'a Costs, processors: usize) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let mut arrivals = vec![None; Hop::table(stages, micro_batches)];
        for m in 0..micro_batches {
            arrivals[Hop::new(Direction::Forward, 0, m).index(micro_batches)] = Some(0.0);
        }
        Self {
            schedule,
            work: Work::new(schedule, costs),
            links: Links::new(schedule, costs),
            events: BinaryHeap::new(),
            line: VecDeque::new(),
            free: processors,
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

    /// Turns a device that is free to its next action.
    fn go_on(&mut self, device: usize, now: f64) {
        let Some(action) = self.next(device) else {
            return;
        };
        let hop = action.takes();
        let arrival = hop.map_or(Some(now), |hop| {
            self.arrivals[hop.index(self.schedule.micro_batches())]
        });
        match arrival {
            Some(arrival) => self.ready(device, now.max(arrival)),
            None => self.waits[device] = true,
        }
    }

    fn ready(&mut self, device: usize, time: f64) {
        let what = What::Ready;
        self.events.push(Reverse(Event { time, device, what }));
    }

    /// Gives the free processors to those who have waited longest.
    fn begin(&mut self, now: f64) {
        while self.free > 0
            && let Some((device, ready)) = self.line.pop_front()
        {
            let Some(action) = self.next(device) else {
                continue;
            };
            self.free -= 1;
            self.positions[device] += 1;
            let end = now + self.work.seconds(action);
            self.spans.push(Span {
                device,
                action,
                ready,
                start: now,
                end,
            });
            self.events.push(Reverse(Event {
                time: end,
                device,
                what: What::Done(action),
            }));
        }
    }

    fn done(&mut self, device: usize, action: Action, now: f64) {
        self.free += 1;
        if let Some(hop) = action.gives(self.schedule.stages()) {
            let arrival = self.links.arrival(action.stage, hop, now);
            self.arrivals[hop.index(self.schedule.micro_batches())] = Some(arrival);
            let taker = self.schedule.device_of()[hop.stage];
            let awaited = self.next(taker).and_then(Action::takes) == Some(hop);
            if self.waits[taker] && awaited {
                self.waits[taker] = false;
                self.ready(taker, arrival);
            }
        }
        self.go_on(device, now);
    }
}

/// Something that happens to a device at a moment.
struct Event {
    time: f64,
    device: usize,
    what: What,
}

/// What happens. At the same moment, processors become free before others ask for them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Done(Action),
    Ready,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.time.total_cmp(&other.time);
        let what = || self.what.cmp(&other.what);
        by_time.then_with(what).then(self.device.cmp(&other.device))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}
