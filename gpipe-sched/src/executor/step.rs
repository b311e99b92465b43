//! A step or an evaluation: started on all workers, and gathered from them.

use std::sync::Arc;

use crate::executor::batch::{Item, ItemOf, check_items};
use crate::executor::clock::Clock;
use crate::executor::failure::{PipelineError, Place, catch};
use crate::executor::loss_stage::LossStage;
use crate::executor::part::Part;
use crate::executor::pipeline::Pipeline;
use crate::executor::stage::Stage;
use crate::executor::sync::mpsc;
use crate::executor::tag::Tag;
use crate::executor::watchdog::Progress;
use crate::executor::worker::{Report, StepContext, Stop};
use crate::schedule::builders::forward_only::forward_over;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::level::Held;
use crate::simulate::timeline::{Span, Timeline};

/// The result of a step or an evaluation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The losses, by index of micro-batch; of a step of several replicas those of all, one behind the other.
    pub losses: Vec<f64>,
    /// Seconds that the host thread of each device spent in actions: computing, or, on an
    /// asynchronous device, launching the work.
    pub host_seconds: Vec<f64>,
    /// The spans of all actions, in seconds since the call.
    pub timeline: Timeline,
}

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// Runs the schedule on one batch: one item per micro-batch, in order. Of several replicas each takes its own.
    ///
    /// # Errors
    /// If the items do not match the schedule; otherwise the first failure of a worker. On every rank, if it is so on one.
    pub fn step(&mut self, batch: Vec<ItemOf<S, T>>) -> Result<Outcome, PipelineError> {
        let schedule = self.schedule.clone();
        let micro_batches = schedule.micro_batches();
        let checked = match batch.len() == micro_batches {
            true => check_items(&batch, !schedule.is_forward_only()),
            false => Err(PipelineError::Batch(format!(
                "{} items for a schedule of {micro_batches} micro-batches: give one for each",
                batch.len()
            ))),
        };
        self.run(checked.map(|()| schedule), batch, true)
    }

    /// Evaluates any number of micro-batches: forward passes only, on the same workers.
    ///
    /// `begin` of the stages and the loss stage is called here too, so unused gradients are lost.
    ///
    /// # Errors
    /// If there is no item, or one trains; otherwise the first failure of a worker. On every rank, if it is so on one.
    pub fn forward(&mut self, batch: Vec<ItemOf<S, T>>) -> Result<Outcome, PipelineError> {
        let schedule = check_items(&batch, false).and_then(|()| {
            let schedule = forward_over(self.schedule.device_of().to_vec(), batch.len())?;
            Ok(Arc::new(schedule))
        });
        self.run(schedule, batch, false)
    }

    /// Ends the step or evaluation that the other ranks make: this one has no batch for it, for the reason `why`. The
    /// error of a rank before this one, if there is one too.
    pub fn refuse_step(&mut self, why: &str) -> Option<PipelineError> {
        self.begin_epoch();
        let own = Err(PipelineError::Batch(why.to_owned()));
        let joined = self.join_results(own, true).err();
        joined.filter(|error| matches!(error, PipelineError::Remote { .. }))
    }

    /// Takes part in the [`forward`](Self::forward) of other replicas, for which this one has no batch. Every rank of this
    /// replica calls it in place of its own.
    ///
    /// # Errors
    /// The first failure of another rank.
    pub fn forward_of_others(&mut self) -> Result<(), PipelineError> {
        self.begin_epoch();
        let nothing = Gathered::new(self.workers.len(), self.schedule.stages());
        self.join_results(Ok(nothing), false).map(drop)
    }

    /// Runs a schedule on all workers and gathers their reports. Where there is none, the workers of other ranks, which may
    /// have theirs, hear why.
    fn run(
        &mut self,
        schedule: Result<Arc<Schedule>, PipelineError>,
        batch: Vec<ItemOf<S, T>>,
        is_step: bool,
    ) -> Result<Outcome, PipelineError> {
        self.begin_epoch();
        let own = schedule.and_then(|schedule| self.run_own(schedule, batch));
        Ok(self.join_results(own, is_step)?.outcome())
    }

    /// Runs the lanes of this rank's workers and gathers their reports.
    fn run_own(
        &mut self,
        schedule: Arc<Schedule>,
        batch: Vec<ItemOf<S, T>>,
    ) -> Result<Gathered, PipelineError> {
        self.check_workers()?;
        let epoch = self.epoch;
        let clock = Clock::start();
        let began = self.world().map_or(0.0, |world| world.time().0);
        self.mailboxes.open(epoch, batch.len(), clock);
        let has_first_stage = self.check_here(self.schedule.device_of()[0]).is_ok();
        let mut micro_batches = Vec::with_capacity(batch.len());
        let mut targets = Vec::with_capacity(batch.len());
        for Item {
            micro_batch,
            input,
            target,
        } in batch
        {
            let transfer = Transfer::new(Direction::Forward, 0, micro_batch.index);
            // The first worker reports a refusal: it misses the flow.
            let tag = Tag { epoch, transfer };
            if has_first_stage {
                let _ = self.mailboxes.send(tag, input, clock.seconds());
            }
            micro_batches.push(micro_batch);
            targets.push(target);
        }
        let context = Arc::new(StepContext {
            epoch,
            progress: Progress::of_lanes(schedule.clone()),
            schedule,
            micro_batches,
            clock,
        });
        let mut targets = Some(targets);
        let last_device = self.last_device();
        let (reply, reports) = mpsc::channel();
        for (device, worker) in self.workers.iter().enumerate() {
            let targets = if device == last_device {
                targets.take()
            } else {
                None
            };
            let (context, reply) = (context.clone(), reply.clone());
            worker.give(Box::new(move |worker| {
                let targets = targets.unwrap_or_default().into_iter();
                let mut targets: Vec<Option<T::Target>> = targets.map(Some).collect();
                let mut report = worker.run(&context, &mut targets);
                // Those that a failed step leaves; their destructors are code of the caller too.
                for target in targets.into_iter().flatten() {
                    let place = Place::Finish(Part::LossStage);
                    if let Err(error) = catch(place, || drop(target)) {
                        report = report.and(Err(error.into()));
                    }
                }
                let failed = matches!(report, Err(Stop::Failed(_)));
                // The error is sent before the alarm, so that no error caused by the alarm precedes
                // it.
                let _ = reply.send((worker.device, report));
                if failed {
                    worker.mailboxes.stop(context.epoch);
                }
            }));
        }
        drop(reply);
        let mut gathered = Gathered::new(self.workers.len(), self.schedule.stages());
        gathered.began = began;
        let waited = self.collect(
            &reports,
            clock,
            &context.progress,
            epoch,
            |device, report| {
                gathered.take(device, report);
            },
        );
        gathered.checked(waited)
    }
}

/// The reports of the workers.
pub(crate) struct Gathered {
    first_error: Option<PipelineError>,
    /// The time of rank 0 or, before the ranks are joined, of this one, from which spans count.
    pub began: f64,
    pub spans: Vec<Span>,
    pub host_seconds: Vec<f64>,
    pub held: Vec<Vec<Held>>,
    pub losses: Vec<f64>,
}

impl Gathered {
    pub fn new(devices: usize, stages: usize) -> Self {
        Self {
            first_error: None,
            began: 0.0,
            spans: Vec::new(),
            host_seconds: vec![0.0; devices],
            held: vec![Vec::new(); stages],
            losses: Vec::new(),
        }
    }

    fn take(&mut self, device: usize, report: Result<Report, Stop>) {
        match report {
            Ok(Report {
                spans,
                host_seconds,
                held,
                losses,
            }) => {
                self.spans.extend(spans);
                self.host_seconds[device] = host_seconds;
                for (stage, counted) in held {
                    self.held[stage] = counted;
                }
                self.losses.extend(losses.into_iter().flatten());
            }
            Err(Stop::Failed(error)) => drop(self.first_error.get_or_insert(error)),
            Err(Stop::Stopped) => {}
        }
    }

    /// The reports of workers that were waited for with this result. A worker's error comes first: it may be
    /// the cause.
    fn checked(mut self, waited: Result<(), PipelineError>) -> Result<Self, PipelineError> {
        match self.first_error.take() {
            Some(error) => Err(error),
            None => waited.map(|()| self),
        }
    }

    /// The outcome of a step without errors.
    fn outcome(self) -> Outcome {
        let devices = self.host_seconds.len();
        Outcome {
            losses: self.losses,
            host_seconds: self.host_seconds,
            timeline: Timeline::new(devices, self.spans).with_held(&self.held),
        }
    }
}
