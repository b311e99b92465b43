//! The pipeline: builds, visits and drops one worker per device.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::executor::failure::{PipelineError, Place, guard};
use crate::executor::loss_stage::LossStage;
use crate::executor::mailboxes::Mailboxes;
use crate::executor::part::Part;
use crate::executor::stage::Stage;
use crate::executor::sync::{mpsc, thread};
use crate::executor::worker::Worker;
use crate::schedule::data::Schedule;

pub(crate) type Job<S, T> = Box<dyn FnOnce(&mut Worker<S, T>) + Send>;

/// Stages and their workers: one persistent thread per device, named `gpipe-0`, `gpipe-1` and so
/// on, which builds, owns and drops the stages of its device.
///
/// An error or a panic in an action ends the step: all other workers are woken, the call returns
/// the first error with its [`Place`], and the next step starts from a clean state. No call hangs.
pub struct Pipeline<S: Stage, T: LossStage<S::Flow>> {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) mailboxes: Arc<Mailboxes<S::Flow>>,
    pub(crate) workers: Vec<WorkerHandle<S, T>>,
    pub(crate) epoch: u64,
    pub(crate) deadline: Option<Duration>,
}

/// The caller's handle of one worker.
pub(crate) struct WorkerHandle<S: Stage, T> {
    /// `None` only while the pipeline is being dropped.
    jobs: Option<mpsc::Sender<Job<S, T>>>,
    thread: Option<thread::JoinHandle<()>>,
    /// The worker missed a deadline and is abandoned.
    pub lost: bool,
}

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// Starts the workers. Each builds its own stages with `make_stage(stage)`, which is called on
    /// all threads concurrently; the worker of the last stage then builds the loss stage.
    ///
    /// # Errors
    /// If a thread cannot be started, or a stage or the loss stage cannot be built: the first of
    /// these errors.
    pub fn build<E, G>(
        schedule: Schedule,
        make_stage: impl Fn(usize) -> Result<S, E> + Send + Sync + 'static,
        make_loss_stage: impl FnOnce() -> Result<T, G> + Send + 'static,
    ) -> Result<Self, PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
        G: Into<Box<dyn Error + Send + Sync>>,
    {
        let schedule = Arc::new(schedule);
        let (devices, device_of) = (schedule.devices(), schedule.device_of());
        let mailboxes = Arc::new(Mailboxes::new(devices, device_of));
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
        };
        for device in 0..devices {
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
                let made = make(device, owned, &*make_stage, make_loss_stage, mailboxes);
                drop(make_stage);
                let mut worker = match made {
                    Ok(worker) => worker,
                    Err(error) => return drop(ready.send((device, Err(error)))),
                };
                let _ = ready.send((device, Ok(())));
                drop(ready);
                while let Ok(job) = inbox.recv() {
                    job(&mut worker);
                }
            };
            let thread = thread::Builder::new()
                .name(format!("gpipe-{device}"))
                .spawn(work)
                .map_err(|source| PipelineError::Thread { device, source })?;
            pipeline.workers.push(WorkerHandle {
                jobs: Some(jobs),
                thread: Some(thread),
                lost: false,
            });
        }
        drop(ready);
        pipeline.collect(&answers, |_, answer| answer)?;
        Ok(pipeline)
    }

    /// The schedule that [`step`](Self::step) runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Limits the time of each later step or evaluation; `None`, the default, sets no limit.
    ///
    /// A step that misses the deadline fails with [`PipelineError::Overdue`], which names the
    /// action of each busy worker and what the others wait for. A worker that does not return from
    /// its action cannot be stopped: it is abandoned with its stages, and the pipeline has to be
    /// built again.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.deadline = deadline;
    }

    /// Calls `visit` with the number of every stage and the stage, concurrently on the stages' own
    /// threads.
    ///
    /// # Errors
    /// The error of the first stage, in model order, whose visit fails; the others are visited as
    /// well.
    pub fn each<E>(
        &mut self,
        visit: impl Fn(usize, &mut S) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather(visit).map(drop)
    }

    /// [`each`](Self::each), with the results of the visits in model order.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub fn gather<R, E>(
        &mut self,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<R>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.check_workers()?;
        let visit = Arc::new(visit);
        let (reply, replies) = mpsc::channel();
        for worker in &self.workers {
            let (visit, reply) = (visit.clone(), reply.clone());
            worker.give(Box::new(move |worker| {
                let visits = worker.stages.iter_mut().map(|(index, stage)| {
                    let place = Place::Visit(Part::Stage(*index));
                    (*index, guard(place, || visit(*index, stage)))
                });
                let visits: Vec<_> = visits.collect();
                // Captured values (tensors, for example) are dropped before the caller continues.
                drop(visit);
                let _ = reply.send((worker.device, visits));
            }));
        }
        drop(reply);
        let mut results: Vec<Option<Result<R, PipelineError>>> = Vec::new();
        results.resize_with(self.schedule.stages(), || None);
        self.collect(&replies, |_, visits| {
            for (stage, result) in visits {
                results[stage] = Some(result);
            }
            Ok(())
        })?;
        results.into_iter().flatten().collect()
    }

    /// Calls `visit` with the loss stage, on that stage's thread.
    ///
    /// # Errors
    /// If the visit fails.
    pub fn with_loss_stage<R, E>(
        &mut self,
        visit: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> Result<R, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.check_workers()?;
        let device = self.last_device();
        let (reply, replies) = mpsc::channel();
        self.workers[device].give(Box::new(move |worker| {
            if let Some(loss_stage) = &mut worker.loss_stage {
                let _ = reply.send(guard(Place::Visit(Part::LossStage), || visit(loss_stage)));
            }
        }));
        replies
            .recv()
            .unwrap_or(Err(PipelineError::Gone { device }))
    }

    pub(crate) fn last_device(&self) -> usize {
        self.schedule.device_of()[self.schedule.stages() - 1]
    }

    /// Fails if a worker was abandoned.
    pub(crate) fn check_workers(&self) -> Result<(), PipelineError> {
        match self.workers.iter().position(|worker| worker.lost) {
            Some(device) => Err(PipelineError::Gone { device }),
            None => Ok(()),
        }
    }

    /// Takes one answer from every worker, in order of arrival. A worker that dies drops its end of
    /// the channel, so this always ends.
    fn collect<A>(
        &self,
        answers: &mpsc::Receiver<(usize, A)>,
        mut take: impl FnMut(usize, A) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let mut answered = vec![false; self.workers.len()];
        while let Ok((device, answer)) = answers.recv() {
            answered[device] = true;
            take(device, answer)?;
        }
        match answered.iter().position(|answered| !answered) {
            Some(device) => Err(PipelineError::Gone { device }),
            None => Ok(()),
        }
    }
}

impl<S: Stage, T: LossStage<S::Flow>> Drop for Pipeline<S, T> {
    fn drop(&mut self) {
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

impl<S: Stage, T> WorkerHandle<S, T> {
    /// A worker that is gone drops the job, and with it the sender of the answer.
    pub(crate) fn give(&self, job: Job<S, T>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

/// Closes the mailboxes when a worker's thread ends for any cause, so that no other worker waits
/// for it.
struct CloseOnExit<F>(Arc<Mailboxes<F>>);

impl<F> Drop for CloseOnExit<F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Builds a worker, on its own thread.
fn make<S: Stage, T, E, G>(
    device: usize,
    owned: Vec<usize>,
    make_stage: &impl Fn(usize) -> Result<S, E>,
    make_loss_stage: Option<impl FnOnce() -> Result<T, G>>,
    mailboxes: Arc<Mailboxes<S::Flow>>,
) -> Result<Worker<S, T>, PipelineError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
    G: Into<Box<dyn Error + Send + Sync>>,
{
    let stage = |index: usize| {
        let stage = guard(Place::Build(Part::Stage(index)), || make_stage(index))?;
        Ok::<_, PipelineError>((index, stage))
    };
    let stages = owned.into_iter().map(stage).collect::<Result<_, _>>()?;
    let loss_stage = make_loss_stage
        .map(|make_loss_stage| guard(Place::Build(Part::LossStage), make_loss_stage))
        .transpose()?;
    Ok(Worker {
        device,
        stages,
        loss_stage,
        mailboxes,
    })
}
