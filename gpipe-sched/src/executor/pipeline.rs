//! The pipeline: one worker per device, made, visited and dropped.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::executor::failure::{Part, PipelineError, Place, guard};
use crate::executor::loss_stage::LossStage;
use crate::executor::mailboxes::Mailboxes;
use crate::executor::stage::Stage;
use crate::executor::sync::{mpsc, thread};
use crate::executor::worker::Worker;
use crate::schedule::data::Schedule;

pub(crate) type Job<S, T> = Box<dyn FnOnce(&mut Worker<S, T>) + Send>;

/// Stages at work: one persistent thread a device, named `gpipe-0`, `gpipe-1` and so on, which
/// makes, owns and drops the stages of its device.
///
/// Whatever ends an action badly, an error or a panic, ends the step: all other workers are woken,
/// the first error comes back with its [`Place`], and the next step starts afresh. No call hangs.
pub struct Pipeline<S: Stage, T: LossStage<S::Flow>> {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) mailboxes: Arc<Mailboxes<S::Flow>>,
    pub(crate) workers: Vec<WorkerHandle<S, T>>,
    pub(crate) epoch: u64,
    pub(crate) deadline: Option<Duration>,
}

/// The caller's end of one worker.
pub(crate) struct WorkerHandle<S: Stage, T> {
    /// `None` only while the pipeline is dropped.
    jobs: Option<mpsc::Sender<Job<S, T>>>,
    thread: Option<thread::JoinHandle<()>>,
    /// It did not answer in time: nobody waits for it any more.
    pub lost: bool,
}

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// Starts the workers. Each makes its own stages with `make_stage`, which is told their numbers
    /// and called on all threads at once; the one with the last stage then makes the loss stage.
    ///
    /// # Errors
    /// If a thread cannot be started, or a stage or the loss stage cannot be made: the first of these.
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
        // From the first thread on it is a pipeline, so that leaving early joins those that run.
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

    /// What [`step`](Self::step) runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How long a step or an evaluation may take from now on; `None`, as at first, is as long as it
    /// takes.
    ///
    /// One that is not over by then ends with [`PipelineError::Overdue`], which says who is at work
    /// on what and who waits for whom. A worker that does not come back from its action cannot be
    /// stopped: it is left behind with its stages, and the pipeline has to be built again.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.deadline = deadline;
    }

    /// Calls `visit` with every stage and its number, on the stages' own threads, all at once.
    ///
    /// # Errors
    /// That of the first stage, in model order, where it fails; the others are visited all the
    /// same.
    pub fn each<E>(
        &mut self,
        visit: impl Fn(usize, &mut S) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.gather(visit).map(drop)
    }

    /// [`each`](Self::each), with what the visits give, in model order.
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
                // What the closure holds (tensors, say) is let go before the caller hears of it.
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

    /// Calls `visit` with the loss stage, on its thread.
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
                let _ = reply.send(guard(Place::Visit(Part::Turn), || visit(loss_stage)));
            }
        }));
        replies
            .recv()
            .unwrap_or(Err(PipelineError::Gone { device }))
    }

    pub(crate) fn last_device(&self) -> usize {
        self.schedule.device_of()[self.schedule.stages() - 1]
    }

    /// Nobody asks a worker that was left behind.
    pub(crate) fn check_workers(&self) -> Result<(), PipelineError> {
        match self.workers.iter().position(|worker| worker.lost) {
            Some(device) => Err(PipelineError::Gone { device }),
            None => Ok(()),
        }
    }

    /// Takes one answer from every worker, in the order in which they come. A worker that dies
    /// drops its end of the channel, so this ends in any case.
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
        // All are told before any is waited for.
        for worker in &mut self.workers {
            worker.jobs = None;
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take().filter(|_| !worker.lost) {
                // A stage that panics while it is dropped has said so on its own thread.
                let _ = thread.join();
            }
        }
    }
}

impl<S: Stage, T> WorkerHandle<S, T> {
    /// A worker that is gone drops the job, and with it the sender that it would answer through.
    pub(crate) fn give(&self, job: Job<S, T>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

/// However a thread ends, nobody waits for it.
struct CloseOnExit<F>(Arc<Mailboxes<F>>);

impl<F> Drop for CloseOnExit<F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Makes a worker, on its own thread.
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
        .map(|make_loss_stage| guard(Place::Build(Part::Turn), make_loss_stage))
        .transpose()?;
    Ok(Worker {
        device,
        stages,
        loss_stage,
        mailboxes,
    })
}
