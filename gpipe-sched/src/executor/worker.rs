//! The worker of one device: runs a lane of the schedule on its own thread.

use std::sync::Arc;

use crate::executor::clock::Clock;
use crate::executor::failure::{PipelineError, Place, catch, guard};
use crate::executor::loss_stage::LossStage;
use crate::executor::mailbox::Arrived;
use crate::executor::mailboxes::{Mailboxes, Refusal};
use crate::executor::part::Part;
use crate::executor::stage::{MicroBatch, Ran, Reservation, Stage};
use crate::executor::tag::Tag;
use crate::executor::watchdog::Progress;
use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::level::Held;
use crate::simulate::timeline::Span;

/// The stages of one device, and the loss stage on the device of the last stage. Built, used and
/// dropped on one thread.
pub(crate) struct Worker<S: Stage, T> {
    pub device: usize,
    /// The stages with their numbers, ascending.
    pub stages: Vec<(usize, S)>,
    pub loss_stage: Option<T>,
    pub mailboxes: Arc<Mailboxes<S::Flow>>,
}

/// A step or an evaluation, shared by all workers.
pub(crate) struct StepContext {
    pub epoch: u64,
    pub schedule: Arc<Schedule>,
    pub micro_batches: Vec<MicroBatch>,
    pub clock: Clock,
    pub progress: Progress,
}

/// What a worker returns from a step.
pub(crate) struct Report {
    pub spans: Vec<Span>,
    /// Seconds that the worker's thread spent in actions.
    pub host_seconds: f64,
    /// The bytes held by each of the worker's stages, in the form of
    /// [`Timeline::with_held`](crate::Timeline::with_held).
    pub held: Vec<(usize, Vec<Held>)>,
    /// Set by the worker with the loss stage.
    pub losses: Option<Vec<f64>>,
}

/// Why a worker did not finish a step.
pub(crate) enum Stop {
    /// This worker failed.
    Failed(PipelineError),
    /// Another worker failed.
    Stopped,
}

impl From<PipelineError> for Stop {
    fn from(error: PipelineError) -> Self {
        Self::Failed(error)
    }
}

impl<S: Stage, T: LossStage<S::Flow>> Worker<S, T> {
    /// Runs this device's lane. `targets` are those of the loss stage, by index of micro-batch.
    pub fn run(
        &mut self,
        context: &StepContext,
        targets: &mut [Option<T::Target>],
    ) -> Result<Report, Stop> {
        let step = context.micro_batches.first().map_or(0, |m| m.step);
        // It may hold memory of the last stage's device, of a step that failed.
        if let Some(loss_stage) = &mut self.loss_stage {
            guard(Place::Begin(Part::LossStage), || loss_stage.begin(step))?;
        }
        for (index, stage) in &mut self.stages {
            guard(Place::Begin(Part::Stage(*index)), || stage.begin(step))?;
        }
        let lane = &context.schedule.lanes()[self.device];
        let mut spans = Vec::with_capacity(lane.len());
        let mut held: Vec<(usize, Vec<Held>)> = Vec::with_capacity(self.stages.len());
        for (index, stage) in &mut self.stages {
            let first = catch(Place::Begin(Part::Stage(*index)), || stage.held())?;
            held.push((*index, first.into_iter().collect()));
        }
        // When the device was free. Between `ready` and `start` it waits for the processor: a worker that
        // is woken up is ready since its flow arrived.
        let mut free = 0.0;
        for (position, &action) in lane.iter().enumerate() {
            context.progress.reach(self.device, position);
            let (flow, arrived, reservation) = match action.receives() {
                Some(transfer) => {
                    let arrived = self.recv(context, transfer, action.stage)?;
                    (Some(arrived.flow), arrived.time, arrived.reservation)
                }
                None => (None, free, None),
            };
            context.progress.enter(self.device, position);
            let slot = self.slot(action.stage);
            let turn = || {
                self.turn(
                    context,
                    action,
                    (flow, reservation),
                    targets,
                    &mut held[slot].1,
                )
            };
            let (start, end) = catch(Place::Action(action), turn)??;
            spans.push(Span {
                device: self.device,
                action,
                ready: arrived.max(free),
                start,
                end,
            });
            free = end;
        }
        context.progress.reach(self.device, lane.len());
        let host_seconds = spans
            .iter()
            .map(|span| (span.end - span.start).max(0.0))
            .sum();
        for (index, stage) in &mut self.stages {
            let place = || Place::Finish(Part::Stage(*index));
            guard(place(), || stage.finish())?;
            let now = context.clock.seconds();
            let ran = guard(place(), || stage.ran())?;
            set_device_times(&mut spans, *index, now, &ran);
        }
        make_disjoint(&mut spans);
        let losses = self
            .loss_stage
            .as_mut()
            .map(|loss_stage| guard(Place::Finish(Part::LossStage), || loss_stage.losses()));
        Ok(Report {
            spans,
            host_seconds,
            held,
            losses: losses.transpose()?,
        })
    }

    fn slot(&self, stage: usize) -> usize {
        self.stages.partition_point(|(index, _)| *index < stage)
    }

    /// Runs one action on a flow that has arrived, with what was reserved for it, and sends its result: the times at which it
    /// starts and ends.
    fn turn(
        &mut self,
        context: &StepContext,
        action: Action,
        (flow, reservation): (Option<S::Flow>, Option<Reservation>),
        targets: &mut [Option<T::Target>],
        held: &mut Vec<Held>,
    ) -> Result<(f64, f64), Stop> {
        let slot = self.slot(action.stage);
        let entered = self.stages[slot].1.enter();
        drop(reservation);
        let start = context.clock.seconds();
        let flow = self.act(context, action, flow)?;
        let flow = self.loss(context, action, flow, targets)?;
        let stage = &mut self.stages[slot].1;
        guard(Place::Action(action), || stage.leave())?;
        let end = context.clock.seconds();
        held.extend(stage.held());
        // Before the processor is given away, so that the flow does not wait for it too.
        self.pass_on(context, action, flow)?;
        drop(entered);
        Ok((start, end))
    }

    /// Runs one action of a stage on a flow.
    fn act(
        &mut self,
        context: &StepContext,
        action: Action,
        flow: Option<S::Flow>,
    ) -> Result<Option<S::Flow>, PipelineError> {
        let m = &context.micro_batches[action.micro_batch];
        let slot = self.slot(action.stage);
        let stage = &mut self.stages[slot].1;
        guard(Place::Action(action), || match (action.op, flow) {
            (Op::Forward, Some(x)) => stage.forward(m, x).map(Some),
            (Op::Backward, Some(dy)) => stage.backward(m, dy),
            (Op::InputGrad, Some(dy)) => stage.input_grad(m, dy),
            (Op::WeightGrad, _) => stage.weight_grad(m).map(|()| None),
            (Op::Recompute, _) => stage.recompute(m).map(|()| None),
            (Op::Forward | Op::Backward | Op::InputGrad, None) => Ok(None),
        })
    }

    /// Runs the loss stage directly after the last stage's forward pass, within the same span, so
    /// that the outputs are dropped before the next micro-batch. Any other flow is returned
    /// unchanged.
    fn loss(
        &mut self,
        context: &StepContext,
        action: Action,
        flow: Option<S::Flow>,
        targets: &mut [Option<T::Target>],
    ) -> Result<Option<S::Flow>, PipelineError> {
        let is_last = action.op == Op::Forward && action.stage + 1 == context.schedule.stages();
        let (true, Some(loss_stage)) = (is_last, &mut self.loss_stage) else {
            return Ok(flow);
        };
        let target = targets.get_mut(action.micro_batch).and_then(Option::take);
        let (Some(y), Some(target)) = (flow, target) else {
            return Ok(None);
        };
        let m = &context.micro_batches[action.micro_batch];
        guard(
            Place::Loss {
                micro_batch: m.index,
            },
            || loss_stage.loss(m, y, target),
        )
    }

    /// Sends the result of an action to its receiver.
    fn pass_on(
        &self,
        context: &StepContext,
        action: Action,
        flow: Option<S::Flow>,
    ) -> Result<(), Stop> {
        let stages = context.schedule.stages();
        let Some(transfer) = action.sends(stages) else {
            return Ok(());
        };
        if transfer.direction == Direction::Backward && context.schedule.is_forward_only() {
            return Ok(());
        }
        let place = match action.op {
            Op::Forward => Place::Loss {
                micro_batch: action.micro_batch,
            },
            _ => Place::Action(action),
        };
        let flow = flow.ok_or(PipelineError::NoGradient { place })?;
        let tag = Tag {
            epoch: context.epoch,
            transfer,
        };
        self.mailboxes
            .send(tag, flow, context.clock.seconds())
            .map_err(|refusal| stop(transfer, &refusal))
    }

    /// A flow, with the time of its arrival.
    fn recv(
        &self,
        context: &StepContext,
        transfer: Transfer,
        stage: usize,
    ) -> Result<Arrived<S::Flow>, Stop> {
        let stage = &self.stages[self.slot(stage)].1;
        let tag = Tag {
            epoch: context.epoch,
            transfer,
        };
        self.mailboxes
            .recv(tag, || stage.reserve())
            .map_err(|refusal| stop(transfer, &refusal))
    }
}

/// Sets the spans of a stage to the times of its device, which had finished all of them at `now`.
fn set_device_times(spans: &mut [Span], stage: usize, now: f64, ran: &[Ran]) {
    let spans = spans.iter_mut().filter(|span| span.action.stage == stage);
    for (span, ran) in spans.zip(ran) {
        span.start = (now - ran.start).max(0.0);
        span.end = now - ran.end;
        // The device does not report waits for shared resources.
        span.ready = span.start;
    }
}

/// Makes the spans of a device ascend and disjoint: the stages of one worker may overlap on an
/// asynchronous device, its clock is not the host's, and the host's may step back.
fn make_disjoint(spans: &mut [Span]) {
    let mut free = 0.0_f64;
    for span in spans {
        span.ready = span.ready.max(free);
        span.start = span.start.max(span.ready);
        span.end = span.end.max(span.start);
        free = span.end;
    }
}

fn stop(transfer: Transfer, refusal: &Refusal) -> Stop {
    match refusal {
        Refusal::Stopped => Stop::Stopped,
        Refusal::Unknown | Refusal::Twice => {
            Stop::Failed(PipelineError::Misdelivered(transfer.to_string()))
        }
        Refusal::Unsent(message) => Stop::Failed(PipelineError::Unsent {
            transfer: transfer.to_string(),
            message: message.clone(),
        }),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::simulate::timeline::Timeline;

    #[test]
    fn a_clock_that_steps_back_gives_a_timeline_all_the_same() {
        let times = [[0.0, 1.0, 4.0], [4.0, 2.0, 1.0], [0.5, 0.6, 0.7]];
        let ops = [Op::Forward, Op::Recompute, Op::Backward];
        let mut spans: Vec<Span> = times
            .into_iter()
            .zip(ops)
            .map(|([ready, start, end], op)| Span {
                device: 0,
                action: Action::new(0, op, 0),
                ready,
                start,
                end,
            })
            .collect();
        make_disjoint(&mut spans);
        let ascending: Vec<f64> = spans
            .iter()
            .flat_map(|s| [s.ready, s.start, s.end])
            .collect();
        assert!(ascending.is_sorted(), "{ascending:?}");
        let timeline = Timeline::new(1, spans);
        assert_eq!(timeline.makespan(), 3.0);
        let spent = timeline.bubble_breakdown(|_, _| 0.5).unwrap();
        assert_eq!((spent[0].work, spent[0].recompute), (3.0, 0.0));
    }
}
