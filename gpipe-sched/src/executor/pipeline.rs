//! The pipeline: builds and drops one worker per device, and waits for their answers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::executor::clock::{Clock, Received};
use crate::executor::failure::{PipelineError, is_of_another_rank};
use crate::executor::far::Far;
use crate::executor::loss_stage::LossStage;
use crate::executor::mailboxes::Mailboxes;
use crate::executor::part::Part;
use crate::executor::stage::Stage;
use crate::executor::sync::{mpsc, receive, thread};
use crate::executor::tag::Tag;
use crate::executor::watchdog::Progress;
use crate::executor::worker_handle::{CloseOnExit, Job, WorkerHandle, make};
use crate::schedule::data::Schedule;

/// Time for waiting workers to answer when a call is overdue.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Stages and their workers: one persistent thread per device, named `gpipe-0`, `gpipe-1` and so
/// on, which builds, owns and drops the stages of its device.
///
/// An error or a panic in an action ends the step: all other workers are woken, the call returns
/// the first error with its [`Place`](crate::Place), and the next step starts from a clean state. No call hangs.
pub struct Pipeline<S: Stage, T: LossStage<S::Flow>> {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) mailboxes: Arc<Mailboxes<S::Flow>>,
    pub(crate) workers: Vec<WorkerHandle<S, T>>,
    pub(crate) epoch: u64,
    pub(crate) deadline: Option<Duration>,
    /// The name of the next visit.
    pub(crate) task: &'static str,
}

/// The name of a visit that has no other.
pub(crate) const VISIT: &str = "a visit";

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// Starts the workers. Each builds its own stages with `make_stage(stage)`, which is called on
    /// all threads concurrently; the worker of the last stage then builds the loss stage.
    ///
    /// # Errors
    /// If a thread cannot be started, or a stage or the loss stage cannot be built: the error of the first device.
    pub fn build<E, G>(
        schedule: Schedule,
        make_stage: impl Fn(usize) -> Result<S, E> + Send + Sync + 'static,
        make_loss_stage: impl FnOnce() -> Result<T, G> + Send + 'static,
    ) -> Result<Self, PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
        G: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::build_over(schedule, None, make_stage, make_loss_stage)
    }

    /// Starts the workers of this rank's devices; of all, without other ranks.
    pub(crate) fn build_over<E, G>(
        schedule: Schedule,
        far: Option<Far<S::Flow>>,
        make_stage: impl Fn(usize) -> Result<S, E> + Send + Sync + 'static,
        make_loss_stage: impl FnOnce() -> Result<T, G> + Send + 'static,
    ) -> Result<Self, PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
        G: Into<Box<dyn Error + Send + Sync>>,
    {
        let schedule = Arc::new(schedule);
        let (devices, device_of) = (schedule.devices(), schedule.device_of());
        let own = |device: usize| {
            let far = far.as_ref();
            far.is_none_or(|far| far.rank_of[device] == far.world.rank())
        };
        let own: Vec<bool> = (0..devices).map(own).collect();
        let mailboxes = Arc::new(Mailboxes::new(devices, device_of, far));
        if let Some(far) = mailboxes.far() {
            far.world.attach(mailboxes.clone());
        }
        let make_stage = Arc::new(make_stage);
        let mut make_loss_stage = Some(make_loss_stage);
        let (ready, answers) = mpsc::channel();
        // The pipeline exists from the first thread on, so that an early return joins the threads.
        let workers = Vec::with_capacity(devices);
        let mut pipeline = Self {
            schedule: schedule.clone(),
            mailboxes: mailboxes.clone(),
            workers,
            epoch: 0,
            deadline: None,
            task: VISIT,
        };
        // Begun here, so that what stages post to each other while they are built is of this call, which ends with it.
        let call = pipeline.begin_call();
        let mut started = Ok(());
        for (device, is_own) in own.into_iter().enumerate() {
            if !is_own {
                pipeline.workers.push(WorkerHandle::far());
                continue;
            }
            let owned: Vec<usize> = (0..device_of.len())
                .filter(|&stage| device_of[stage] == device)
                .collect();
            let has_loss_stage = device_of.last() == Some(&device);
            let make_loss_stage = if has_loss_stage {
                make_loss_stage.take()
            } else {
                None
            };
            let (make_stage, mailboxes, ready) =
                (make_stage.clone(), mailboxes.clone(), ready.clone());
            let (jobs, inbox) = mpsc::channel::<Job<S, T>>();
            let work = move || {
                let _close = CloseOnExit(mailboxes.clone());
                let stops = mailboxes.clone();
                let made = make(device, owned, &*make_stage, make_loss_stage, mailboxes);
                drop(make_stage);
                let mut worker = match made {
                    Ok(worker) => worker,
                    Err(error) => {
                        // At once: workers of any rank may wait for what the stage had to give.
                        stops.stop(call);
                        return drop(ready.send((device, Err(error))));
                    }
                };
                let _ = ready.send((device, Ok(())));
                drop(ready);
                while let Ok(job) = inbox.recv() {
                    job(&mut worker);
                }
            };
            let thread = thread::Builder::new().name(format!("gpipe-{device}"));
            match thread.spawn(work) {
                Ok(thread) => pipeline.workers.push(WorkerHandle {
                    jobs: Some(jobs),
                    thread: Some(thread),
                    lost: false,
                    is_far: false,
                }),
                Err(source) => {
                    pipeline.mailboxes.stop(call);
                    started = Err(PipelineError::Thread { device, source });
                    break;
                }
            }
        }
        drop(ready);
        let progress = Progress::of_visit("the construction", pipeline.parts());
        let mut errors = Vec::new();
        let take = |device, answer: Result<(), PipelineError>| {
            errors.extend(answer.err().map(|error| (device, error)));
        };
        let waited = pipeline.collect(&answers, Clock::start(), &progress, call, take);
        // An error of another rank only if there is no cause on this one.
        let first = errors
            .into_iter()
            .min_by_key(|(device, error)| (is_of_another_rank(error), *device));
        let built = first.map_or(Ok(()), |(_, error)| Err(error));
        pipeline.agree(call, started.and(waited).and(built))?;
        Ok(pipeline)
    }

    /// The schedule that [`step`](Self::step) runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Limits the time of each later call that waits for the workers: steps, evaluations and visits.
    /// `None`, the default, sets no limit.
    ///
    /// A call that misses the deadline fails with [`PipelineError::Overdue`], which names what each
    /// busy worker does and what the others wait for. Busy workers have another second to return from it, so the call
    /// ends at most a second after the deadline. One that does not return cannot be stopped: it is abandoned with its
    /// stages, and the pipeline has to be built again.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.deadline = deadline;
    }

    pub(crate) fn last_device(&self) -> usize {
        self.schedule.device_of()[self.schedule.stages() - 1]
    }

    /// Fails if a worker was abandoned, or the run is over on another rank.
    pub(crate) fn check_workers(&self) -> Result<(), PipelineError> {
        self.world().map_or(Ok(()), |world| world.check())?;
        match self.workers.iter().position(|worker| worker.lost) {
            Some(device) => Err(PipelineError::Gone { device }),
            None => Ok(()),
        }
    }

    /// The stages of each worker, in the order in which they are visited.
    pub(crate) fn parts(&self) -> Vec<Vec<Part>> {
        let mut parts = vec![Vec::new(); self.schedule.devices()];
        for (stage, &device) in self.schedule.device_of().iter().enumerate() {
            parts[device].push(Part::Stage(stage));
        }
        parts
    }

    /// Takes one answer from every worker that has a part in the call, in order of arrival, until the
    /// deadline, when the waits of the call `stops` end. Every call that waits for workers waits here. A worker that
    /// dies drops its end of the channel, so this always ends.
    pub(crate) fn collect<A>(
        &mut self,
        answers: &mpsc::Receiver<(usize, A)>,
        clock: Clock,
        progress: &Progress,
        stops: u64,
        mut take: impl FnMut(usize, A),
    ) -> Result<(), PipelineError> {
        let mut answered = progress.idle();
        for (answered, worker) in answered.iter_mut().zip(&self.workers) {
            *answered |= worker.is_far;
        }
        let mut overdue = None;
        let mut until = self.deadline;
        loop {
            match receive(answers, clock, &mut until) {
                Received::Answer((device, answer)) => {
                    answered[device] = true;
                    take(device, answer);
                }
                Received::Nobody => break,
                Received::Late if overdue.is_none() => {
                    let epoch = self.epoch;
                    let arrived = |transfer| self.mailboxes.holds(Tag { epoch, transfer });
                    overdue = Some(PipelineError::Overdue {
                        seconds: clock.seconds(),
                        stuck: progress.stuck(&answered, arrived),
                    });
                    // Waiting workers can be stopped; they answer at once.
                    self.mailboxes.stop(stops);
                    until = until.map(|until| until.saturating_add(GRACE));
                }
                Received::Late => {
                    for (worker, answered) in self.workers.iter_mut().zip(&answered) {
                        worker.lost = !answered;
                    }
                    break;
                }
            }
        }
        let gone = answered.iter().position(|answered| !answered);
        let gone = gone.map(|device| PipelineError::Gone { device });
        overdue.or(gone).map_or(Ok(()), Err)
    }
}

/// Sizes alone: the stages live on their workers.
impl<S: Stage, T: LossStage<S::Flow>> fmt::Debug for Pipeline<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("stages", &self.schedule.stages())
            .field("devices", &self.schedule.devices())
            .field("micro_batches", &self.schedule.micro_batches())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl<S: Stage, T: LossStage<S::Flow>> Drop for Pipeline<S, T> {
    fn drop(&mut self) {
        if let Some(far) = self.mailboxes.far() {
            far.world.detach(&self.mailboxes);
        }
        // Every channel is closed before any worker is joined.
        for worker in &mut self.workers {
            worker.jobs = None;
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take().filter(|_| !worker.lost) {
                // A panic in the destructor of a stage was reported on its own thread.
                let _ = thread.join();
            }
        }
    }
}
