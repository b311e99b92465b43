//! Visits: closures of the caller that run on the threads of the stages.

use std::error::Error;
use std::sync::{Arc, PoisonError};

use crate::executor::clock::Clock;
use crate::executor::failure::{PipelineError, Place, catch, guard, is_of_another_rank};
use crate::executor::loss_stage::LossStage;
use crate::executor::part::Part;
use crate::executor::pipeline::{Pipeline, VISIT};
use crate::executor::stage::Stage;
use crate::executor::sync::{Mutex, MutexGuard, mpsc};
use crate::executor::watchdog::Progress;

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// Names the next visit, for the error of one that misses its deadline: `the update` becomes
    /// `device 0 runs the update of stage 0`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::convert::Infallible;
    /// use gpipe_sched::{Empty, gpipe};
    ///
    /// let mut pipeline = Empty::pipeline(gpipe(2, 2)?)?;
    /// pipeline.during("the update").each(|_, _| Ok::<_, Infallible>(()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn during(&mut self, task: &'static str) -> &mut Self {
        self.task = task;
        self
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

    /// [`each`](Self::each), with the results of the visits in model order: of this rank's stages, where
    /// there are others ([`gather_across`](Self::gather_across) returns those of all).
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
        let call = self.begin_call();
        let own = self.visit_own(call, visit);
        let own = self.agree(call, own)?;
        Ok(own.into_iter().map(|(_, result)| result).collect())
    }

    /// Visits the stages of this rank, in a call; the results with the stages, in model order.
    pub(crate) fn visit_own<R, E>(
        &mut self,
        call: u64,
        visit: impl Fn(usize, &mut S) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Vec<(usize, R)>, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let results = Slots::new(self.schedule.stages());
        let slots = results.clone();
        self.visit_stages(
            call,
            Arc::new(move |index, stage| {
                let place = Place::Visit(Part::Stage(index));
                slots.put(index, guard(place, || visit(index, stage))?);
                Ok(())
            }),
        )?;
        let results = results.take().into_iter().enumerate();
        let results = results.filter_map(|(stage, result)| Some((stage, result?)));
        Ok(results.collect())
    }

    /// Visits the stages of this rank. Apart from [`visit_own`](Self::visit_own), which is compiled for each closure of
    /// the caller: this is compiled once.
    fn visit_stages(&mut self, call: u64, visit: Arc<Visit<S>>) -> Result<(), PipelineError> {
        let task = std::mem::replace(&mut self.task, VISIT);
        self.check_workers()?;
        let clock = Clock::start();
        let progress = Arc::new(Progress::of_visit(task, self.parts()));
        let (reply, replies) = mpsc::channel();
        for worker in &self.workers {
            let (visit, reply, progress) = (visit.clone(), reply.clone(), progress.clone());
            worker.give(Box::new(move |worker| {
                let mut errors = Vec::new();
                for (slot, (index, stage)) in worker.stages.iter_mut().enumerate() {
                    progress.enter(worker.device, slot);
                    if let Err(error) = visit(*index, stage) {
                        errors.push((*index, error));
                        // At once: workers of any rank may wait for what the stage had to give, and the worker's next
                        // stage for them.
                        worker.mailboxes.stop(call);
                    }
                }
                // Before the answer: the caller holds it last.
                drop(visit);
                let _ = reply.send((worker.device, errors));
            }));
        }
        drop(reply);
        let mut errors = Vec::new();
        let waited = self.collect(&replies, clock, &progress, call, |_, failed| {
            errors.extend(failed);
        });
        // Captured values (tensors, for example) are dropped last here, before the caller continues: their destructors are
        // code of the caller too, and a panic of one on a worker would end it.
        let dropped = catch(Place::Visit(Part::Stage(0)), || drop(visit));
        waited?;
        // An error of another rank only if there is no cause on this one.
        let first = errors
            .into_iter()
            .min_by_key(|(stage, error)| (is_of_another_rank(error), *stage));
        first.map_or(dropped, |(_, error)| Err(error))
    }

    /// Calls `visit` with the loss stage, on that stage's thread.
    ///
    /// # Errors
    /// If the visit fails, or the loss stage is on another rank.
    pub fn with_loss_stage<R, E>(
        &mut self,
        visit: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> Result<R, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let epoch = self.epoch;
        self.visit_loss_stage(epoch, visit)
    }

    /// Visits the loss stage, if it is on this rank, in a call.
    pub(crate) fn visit_loss_stage<R, E>(
        &mut self,
        call: u64,
        visit: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> Result<R, PipelineError>
    where
        R: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let result = Slots::new(1);
        let slots = result.clone();
        self.visit_loss(
            call,
            Box::new(move |loss_stage| {
                let place = Place::Visit(Part::LossStage);
                slots.put(0, guard(place, || visit(loss_stage))?);
                Ok(())
            }),
        )?;
        let device = self.last_device();
        let mut result = result.take().into_iter().flatten();
        result.next().ok_or(PipelineError::Gone { device })
    }

    /// Visits the loss stage. Apart from [`visit_loss_stage`](Self::visit_loss_stage) as
    /// [`visit_stages`](Self::visit_stages) is from `visit_own`.
    fn visit_loss(&mut self, call: u64, visit: Box<LossVisit<T>>) -> Result<(), PipelineError> {
        let task = std::mem::replace(&mut self.task, VISIT);
        self.check_workers()?;
        let device = self.last_device();
        self.check_here(device)?;
        let mut parts = vec![Vec::new(); self.workers.len()];
        parts[device].push(Part::LossStage);
        let clock = Clock::start();
        let progress = Progress::of_visit(task, parts);
        let (reply, replies) = mpsc::channel();
        self.workers[device].give(Box::new(move |worker| {
            if let Some(loss_stage) = &mut worker.loss_stage {
                let _ = reply.send((worker.device, visit(loss_stage)));
            }
        }));
        let mut result = Err(PipelineError::Gone { device });
        self.collect(&replies, clock, &progress, call, |_, answer| {
            result = answer;
        })?;
        result
    }
}

/// A visit of each stage, which keeps its results itself.
type Visit<S> = dyn Fn(usize, &mut S) -> Result<(), PipelineError> + Send + Sync;

/// A visit of the loss stage, which keeps its result itself.
type LossVisit<T> = dyn FnOnce(&mut T) -> Result<(), PipelineError> + Send;

/// Places for results of visits, shared by the workers and the caller.
struct Slots<R>(Arc<Mutex<Vec<Option<R>>>>);

impl<R> Slots<R> {
    fn new(count: usize) -> Self {
        let slots = (0..count).map(|_| None).collect();
        Self(Arc::new(Mutex::new(slots)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<R>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, slot: usize, result: R) {
        self.lock()[slot] = Some(result);
    }

    /// The results, of which none is left: closures that hold the places may be dropped later.
    fn take(&self) -> Vec<Option<R>> {
        std::mem::take(&mut *self.lock())
    }
}

impl<R> Clone for Slots<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
