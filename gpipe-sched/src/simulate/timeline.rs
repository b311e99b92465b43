//! Timelines: the spans of all actions of a step, simulated or measured.

use crate::schedule::action::Action;
use crate::schedule::portal::Portal;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::level::Level;

/// The time of one action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The device that ran it.
    pub device: usize,
    /// The action.
    pub action: Action,
    /// When it was ready: its device was free and its flow had arrived. From here to `start` it
    /// waited for a shared resource, such as a processor, be it to wake up.
    pub ready: f64,
    /// When it started, in seconds since the start of the step.
    pub start: f64,
    /// When it ended.
    pub end: f64,
}

/// The spans of one step. The simulator and the executor return the same type, so that prediction
/// and measurement can be drawn, compared and written alike.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Timeline {
    devices: usize,
    /// By device, then by start.
    spans: Vec<Span>,
    /// By device, then by time.
    levels: Vec<Level>,
    /// Ascending.
    portals: Vec<Portal>,
}

impl Timeline {
    /// A timeline of at least `devices` devices. Spans of one device must not overlap; they may
    /// come in any order, but several without duration at one time are taken in the given one.
    pub fn new(devices: usize, mut spans: Vec<Span>) -> Self {
        // What takes no time is over when the span that starts with it begins.
        spans.sort_by(|a, b| {
            let by_start = a.device.cmp(&b.device).then(a.start.total_cmp(&b.start));
            by_start.then(a.end.total_cmp(&b.end))
        });
        let named = spans.last().map_or(0, |span| span.device.saturating_add(1));
        Self {
            devices: devices.max(named),
            spans,
            levels: Vec::new(),
            portals: Vec::new(),
        }
    }

    /// The number of devices.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// All spans, by device and then by start.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The spans of one device, by start.
    pub fn of_device(&self, device: usize) -> &[Span] {
        let first = self.spans.partition_point(|span| span.device < device);
        let count = self.spans[first..].partition_point(|span| span.device == device);
        &self.spans[first..first + count]
    }

    /// The start of the first span; 0 if there is none.
    pub fn start(&self) -> f64 {
        self.spans
            .iter()
            .map(|span| span.start)
            .reduce(f64::min)
            .unwrap_or(0.0)
    }

    /// Seconds from the first start to the last end.
    pub fn makespan(&self) -> f64 {
        let end = self
            .spans
            .iter()
            .map(|span| span.end)
            .reduce(f64::max)
            .unwrap_or(0.0);
        end - self.start()
    }

    /// Seconds for which a device was busy.
    pub fn busy(&self, device: usize) -> f64 {
        self.of_device(device)
            .iter()
            .map(|span| span.end - span.start)
            .sum()
    }

    /// The mean share of the makespan for which the devices idle, from 0 to 1. 0 if the makespan is
    /// 0.
    pub fn bubble(&self) -> f64 {
        let available = self.makespan() * self.devices as f64;
        if available <= 0.0 {
            return 0.0;
        }
        let busy: f64 = self.spans.iter().map(|span| span.end - span.start).sum();
        1.0 - busy / available
    }

    /// Concatenates timelines: each starts at the end of the previous one, and micro-batches are
    /// numbered consecutively.
    #[must_use]
    pub fn in_a_row(timelines: &[Self]) -> Self {
        let (mut spans, mut levels) = (Vec::new(), Vec::new());
        let (mut time, mut number) = (0.0, 0_usize);
        for timeline in timelines {
            spans.extend(timeline.spans.iter().map(|span| Span {
                action: Action {
                    micro_batch: span.action.micro_batch.saturating_add(number),
                    ..span.action
                },
                ready: time + span.ready,
                start: time + span.start,
                end: time + span.end,
                ..*span
            }));
            levels.extend(timeline.levels.iter().map(|level| Level {
                time: time + level.time,
                ..*level
            }));
            time += timeline.start() + timeline.makespan();
            let most = timeline
                .spans
                .iter()
                .map(|span| span.action.micro_batch)
                .max();
            let count = most.map_or(0, |most| most.saturating_add(1));
            number = number.saturating_add(count);
        }
        let devices = timelines.iter().map(Self::devices).max().unwrap_or(0);
        let portals = timelines.iter().flat_map(|timeline| &timeline.portals);
        Self::new(devices, spans)
            .with_levels(levels)
            .with_portals(portals.copied())
    }

    /// The number of flows in flight, sent and not yet received, on the link from stage `link` to
    /// the next (forward) or back to it (backward), at each time at which it changes.
    ///
    /// The link of the last stage is the one to the loss stage, which is part of that stage's
    /// forward span: flows are in flight only backward there.
    pub fn in_flight(&self, direction: Direction, link: usize) -> Vec<(f64, usize)> {
        let last = self.spans.iter().map(|span| span.action.stage).max();
        let stages = last.map_or(0, |last| last.saturating_add(1));
        let trains = self.spans.iter().any(|span| span.action.op.is_backward());
        let taker = match direction {
            Direction::Forward => link.saturating_add(1),
            Direction::Backward => link,
        };
        let here = |transfer: Option<Transfer>| {
            let ours =
                |transfer: Transfer| transfer.direction == direction && transfer.stage == taker;
            transfer.is_some_and(ours) && (direction == Direction::Forward || trains)
        };
        let mut changes = Vec::new();
        for span in &self.spans {
            if here(span.action.sends(stages)) {
                changes.push((span.end, 1));
            }
            if here(span.action.receives()) {
                changes.push((span.start, -1));
            }
        }
        changes.sort_by(|a: &(f64, i64), b| a.0.total_cmp(&b.0));
        let mut flights = 0_i64;
        let mut counts = Vec::new();
        // A flow received at the time at which it is sent was never in flight.
        for at_once in changes.chunk_by(|a, b| a.0 == b.0) {
            flights += at_once.iter().map(|(_, change)| change).sum::<i64>();
            counts.push((at_once[0].0, usize::try_from(flights).unwrap_or(0)));
        }
        counts
    }

    /// The timeline with the portals through which tensors pass stages, for
    /// [`write_trace`](Self::write_trace).
    #[must_use]
    pub fn with_portals(mut self, portals: impl IntoIterator<Item = Portal>) -> Self {
        self.portals = portals.into_iter().collect();
        self.portals.sort_unstable();
        self.portals.dedup();
        self
    }

    /// The portals, ascending, each once.
    pub fn portals(&self) -> &[Portal] {
        &self.portals
    }

    /// The timeline with given memory levels of its devices. Levels that change nothing are
    /// dropped.
    #[must_use]
    pub fn with_levels(mut self, mut levels: Vec<Level>) -> Self {
        levels.sort_by(|a, b| a.device.cmp(&b.device).then(a.time.total_cmp(&b.time)));
        levels.dedup_by(|next, level| next.device == level.device && next.bytes == level.bytes);
        self.levels = levels;
        self
    }

    /// The memory levels, by device and then by time; empty if none were recorded.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The memory levels of one device, by time.
    pub fn levels_of(&self, device: usize) -> &[Level] {
        let first = self.levels.partition_point(|level| level.device < device);
        let count = self.levels[first..].partition_point(|level| level.device == device);
        &self.levels[first..first + count]
    }
}
