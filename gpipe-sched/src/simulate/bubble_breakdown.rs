//! The time of the devices by use: work, recomputation, and idle time by cause.

use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::schedule::fault::{Fault, ScheduleError};
use crate::schedule::transfer::Transfer;
use crate::schedule::walk::walk;
use crate::simulate::simulator::simulate_even;
use crate::simulate::timeline::{Span, Timeline};

/// The cause of an idle time.
///
/// The idle time before an action, or after the last one of a device, is divided at the times at
/// which the awaited flow was sent and arrived (in the mailbox of the device) and the action started:
///
/// ```text
/// … action before ┃ fill or drain ┆ imbalance ┃ transfer ┃ processor ┃ action
///            device free                     sent     arrived     begun
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The pipeline fills: waiting before the first gradient reaches the device, as far as it would
    /// occur with equal stages too. Equal means: the same lanes, every operation at its mean
    /// duration over all devices, transfers without duration.
    Fill,
    /// The pipeline drains: the same waiting from the first gradient on.
    Drain,
    /// Waiting for other stages beyond that, because they take longer: always, or in this step.
    Imbalance,
    /// The flow was sent but had not arrived. Includes waiting for a stage that was late for this
    /// cause.
    Transfer,
    /// All inputs were present, but a shared resource was not: the processor, including the
    /// executor's own work and the time from the arrival of a flow until the waiting worker runs
    /// again. Includes waiting for a stage that was late for this cause.
    Processor,
}

impl Cause {
    /// All causes, in the order of the diagram.
    pub const ALL: [Self; 5] = [
        Self::Fill,
        Self::Drain,
        Self::Imbalance,
        Self::Transfer,
        Self::Processor,
    ];
}

/// An idle time of a device with one cause.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gap {
    /// The device.
    pub device: usize,
    /// The cause.
    pub cause: Cause,
    /// The start, in seconds since the start of the step.
    pub start: f64,
    /// The end, in seconds since the start of the step.
    pub end: f64,
}

/// The time of one device by use, in seconds. The parts add up to the makespan; all but `work` and
/// `recompute` are the bubble.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct BubbleBreakdown {
    /// Work, without recomputation.
    pub work: f64,
    /// Recomputation of activations that were not kept.
    pub recompute: f64,
    /// Idle: [`Cause::Fill`].
    pub fill: f64,
    /// Idle: [`Cause::Drain`].
    pub drain: f64,
    /// Idle: [`Cause::Imbalance`].
    pub imbalance: f64,
    /// Idle: [`Cause::Transfer`].
    pub transfer: f64,
    /// Idle: [`Cause::Processor`].
    pub processor: f64,
}

impl BubbleBreakdown {
    /// The idle time of a cause.
    pub fn idle(&mut self, cause: Cause) -> &mut f64 {
        match cause {
            Cause::Fill => &mut self.fill,
            Cause::Drain => &mut self.drain,
            Cause::Imbalance => &mut self.imbalance,
            Cause::Transfer => &mut self.transfer,
            Cause::Processor => &mut self.processor,
        }
    }
}

impl Timeline {
    /// The schedule that the spans belong to.
    ///
    /// # Errors
    /// If the spans are not a schedule, or their times no finite numbers; those of several steps or of a file
    /// from elsewhere may not be.
    pub fn schedule(&self) -> Result<Schedule, ScheduleError> {
        let spans = self.spans();
        let is_finite = |span: &Span| {
            [span.ready, span.start, span.end]
                .iter()
                .all(|time| time.is_finite())
        };
        if let Some(span) = spans.iter().find(|span| !is_finite(span)) {
            let action = span.action;
            return Err(Fault::Times { action }.into());
        }
        // No memory is allocated for more devices than have spans.
        if spans.len() < self.devices() {
            let idle = (0..self.devices()).find(|&device| self.of_device(device).is_empty());
            let device = idle.unwrap_or(0);
            return Err(Fault::IdleDevice { device }.into());
        }
        let count = |of: fn(&Action) -> usize| {
            let most = spans.iter().map(|span| of(&span.action)).max();
            most.map_or(0, |most| most.saturating_add(1))
        };
        // A stage without a span is missing anyway, so no memory is allocated for it.
        let mut device_of = vec![0; count(|action| action.stage).min(spans.len())];
        let mut lanes = vec![Vec::new(); self.devices()];
        for span in spans {
            if let Some(device) = device_of.get_mut(span.action.stage) {
                *device = span.device;
            }
            lanes[span.device].push(span.action);
        }
        Schedule::new(device_of, count(|action| action.micro_batch), lanes)
    }

    /// All idle time from the first start to the last end, with its causes: by device, then by time.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub fn gaps(&self) -> Result<Vec<Gap>, ScheduleError> {
        let schedule = self.schedule()?;
        Ok(self.gaps_under(&schedule))
    }

    /// The time of each device by use. `again(stage, m)` is the share of the stage's forward pass,
    /// from 0 to 1, that is recomputed for the backward pass of a micro-batch: where the schedule
    /// has no `R` for it, this share of the duration of its `F` counts as recomputation within its
    /// `B` or `I`.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub fn bubble_breakdown(
        &self,
        again: impl Fn(usize, usize) -> f64,
    ) -> Result<Vec<BubbleBreakdown>, ScheduleError> {
        let schedule = self.schedule()?;
        let micro_batches = schedule.micro_batches();
        let cell = |action: Action| action.stage * micro_batches + action.micro_batch;
        // Seconds of recomputation within the backward pass, unless an `R` preceded it.
        let mut hidden = vec![0.0; schedule.stages() * micro_batches];
        for span in self.spans() {
            if span.action.op == Op::Forward {
                let share = again(span.action.stage, span.action.micro_batch);
                hidden[cell(span.action)] = share * (span.end - span.start);
            }
        }
        for span in self.spans() {
            if span.action.op == Op::Recompute {
                hidden[cell(span.action)] = 0.0;
            }
        }
        let mut spent = vec![BubbleBreakdown::default(); self.devices()];
        for span in self.spans() {
            let seconds = span.end - span.start;
            let recompute = match span.action.op {
                Op::Recompute => seconds,
                Op::Backward | Op::InputGrad => hidden[cell(span.action)].min(seconds),
                Op::Forward | Op::WeightGrad => 0.0,
            };
            spent[span.device].recompute += recompute;
            spent[span.device].work += seconds - recompute;
        }
        for gap in self.gaps_under(&schedule) {
            *spent[gap.device].idle(gap.cause) += gap.end - gap.start;
        }
        Ok(spent)
    }

    fn gaps_under(&self, schedule: &Schedule) -> Vec<Gap> {
        let even = self.even(schedule);
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let (begin, end) = (self.start(), self.start() + self.makespan());
        let mut sent = vec![Sent::default(); Transfer::table(stages, micro_batches)];
        let mut lanes: Vec<Lane> = (0..self.devices())
            .map(|device| Lane {
                device,
                free: begin,
                ..Lane::default()
            })
            .collect();
        let (spans, ideals) = (self.by_device(), even.by_device());
        // The walk visits an action after everything it waited for.
        let walked = walk(
            schedule.device_of(),
            micro_batches,
            schedule.lanes(),
            |device, position, action| {
                let (span, ideal) = (spans[device][position], ideals[device][position]);
                let flow = action
                    .receives()
                    .map(|transfer| sent[transfer.index(micro_batches)]);
                let flow = flow.filter(|flow| flow.from.is_some_and(|from| from != device));
                let lane = &mut lanes[device];
                if let Some(flow) = flow {
                    lane.wait(ideal.start, flow.time.min(span.start), flow.late);
                    lane.transfer(flow, span.ready.min(span.start));
                }
                let waited = lane.idle(Cause::Processor, span.start);
                lane.late.processor += waited;
                lane.free = lane.free.max(span.end);
                lane.ideal_free = ideal.end;
                lane.drains |= action.op.is_backward();
                if let Some(transfer) = action.sends(stages) {
                    sent[transfer.index(micro_batches)] = Sent {
                        from: Some(device),
                        time: span.end,
                        late: lane.late,
                    };
                }
            },
        );
        debug_assert!(walked.is_ok(), "a schedule that exists has no deadlock");
        // At the end, all wait for the device that ends last.
        let last = lanes.iter().max_by(|a, b| a.free.total_cmp(&b.free));
        let late = last.map_or(Late::default(), |last| last.late);
        let ideal_end = even.start() + even.makespan();
        for lane in &mut lanes {
            lane.drains = true;
            lane.wait(ideal_end, end, late);
        }
        lanes.into_iter().flat_map(|lane| lane.gaps).collect()
    }

    /// The spans of each device.
    fn by_device(&self) -> Vec<&[Span]> {
        let devices = 0..self.devices();
        devices.map(|device| self.of_device(device)).collect()
    }

    /// The same lanes with every operation at its mean duration.
    fn even(&self, schedule: &Schedule) -> Self {
        let mean = |op: Op| {
            let of_op = self.spans().iter().filter(|span| span.action.op == op);
            let (count, sum) = of_op.fold((0_u32, 0.0), |(count, sum), span| {
                (count + 1, sum + span.end - span.start)
            });
            sum / f64::from(count.max(1))
        };
        let means = Op::ALL.map(|op| (op, mean(op)));
        let seconds = |op| means.iter().find(|(of, _)| *of == op).map_or(0.0, |m| m.1);
        simulate_even(schedule, seconds)
    }
}

/// Delay against equal stages, by the causes other than work.
#[derive(Clone, Copy, Default)]
struct Late {
    transfer: f64,
    processor: f64,
}

/// A flow that was sent.
#[derive(Clone, Copy, Default)]
struct Sent {
    /// The sending device; `None` for the input of the step.
    from: Option<usize>,
    time: f64,
    late: Late,
}

/// The state of one device at a time.
#[derive(Default)]
struct Lane {
    device: usize,
    /// The time up to which the device is accounted for.
    free: f64,
    /// The end of the same action with equal stages.
    ideal_free: f64,
    late: Late,
    /// Whether its first gradient has arrived.
    drains: bool,
    gaps: Vec<Gap>,
}

impl Lane {
    /// Accounts for waiting until the time `until` for another stage with the delay `late`; with
    /// equal stages it would last until `ideal`.
    fn wait(&mut self, ideal: f64, until: f64, late: Late) {
        if until <= self.free {
            return;
        }
        let inherent = (ideal - self.ideal_free).max(0.0);
        let cause = if self.drains {
            Cause::Drain
        } else {
            Cause::Fill
        };
        self.idle(cause, until.min(self.free + inherent));
        // Of the rest, the part by which the other is later than this device for a cause.
        let rest = until - self.free;
        // Not `clamp`, which panics: differences of huge times may not be numbers.
        let transfer = (late.transfer - self.late.transfer).max(0.0).min(rest);
        let processor = (late.processor - self.late.processor).max(0.0);
        let processor = processor.min(rest - transfer);
        self.idle(Cause::Imbalance, until - transfer - processor);
        self.idle(Cause::Processor, until - transfer);
        self.idle(Cause::Transfer, until);
        self.late = late;
    }

    /// Accounts for waiting until the time `until` for a flow in flight.
    fn transfer(&mut self, flow: Sent, until: f64) {
        if self.idle(Cause::Transfer, until) > 0.0 {
            self.late = flow.late;
            self.late.transfer += until - flow.time;
        }
    }

    /// Accounts for idling until the time `until`, if that is later; returns the seconds.
    fn idle(&mut self, cause: Cause, until: f64) -> f64 {
        let (device, start) = (self.device, self.free);
        if until <= start {
            return 0.0;
        }
        self.free = until;
        match self.gaps.last_mut() {
            Some(gap) if gap.cause == cause && gap.end == start => gap.end = until,
            _ => self.gaps.push(Gap {
                device,
                cause,
                start,
                end: until,
            }),
        }
        until - start
    }
}
