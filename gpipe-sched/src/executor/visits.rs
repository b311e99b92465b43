//! Visits: closures of the caller that run on the threads of the stages.

use std::error::Error;
use std::sync::Arc;

use crate::executor::clock::Clock;
use crate::executor::failure::{PipelineError, Place, guard, is_of_another_rank};
use crate::executor::loss_stage::LossStage;
use crate::executor::part::Part;
use crate::executor::pipeline::{Pipeline, VISIT};
use crate::executor::stage::Stage;
use crate::executor::sync::mpsc;
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
        let task = std::mem::replace(&mut self.task, VISIT);
        self.check_workers()?;
        let visit = Arc::new(visit);
        let clock = Clock::start();
        let progress = Arc::new(Progress::of_visit(task, self.parts()));
        let (reply, replies) = mpsc::channel();
        for worker in &self.workers {
            let (visit, reply, progress) = (visit.clone(), reply.clone(), progress.clone());
            worker.give(Box::new(move |worker| {
                let stages = worker.stages.iter_mut().enumerate();
                let visits = stages.map(|(slot, (index, stage))| {
                    progress.enter(worker.device, slot);
                    let place = Place::Visit(Part::Stage(*index));
                    (*index, guard(place, || visit(*index, stage)))
                });
                let visits: Vec<_> = visits.collect();
                let failed = visits.iter().any(|(_, result)| result.is_err());
                // Captured values (tensors, for example) are dropped before the caller continues.
                drop(visit);
                let _ = reply.send((worker.device, visits));
                // Workers of any rank may wait for what the stage had to give.
                if failed {
                    worker.mailboxes.stop(call);
                }
            }));
        }
        drop(reply);
        let mut results: Vec<Option<Result<R, PipelineError>>> = Vec::new();
        results.resize_with(self.schedule.stages(), || None);
        self.collect(&replies, clock, &progress, call, |_, visits| {
            for (stage, result) in visits {
                results[stage] = Some(result);
            }
        })?;
        let is_cause = |result: &Option<Result<R, PipelineError>>| matches!(result, Some(Err(error)) if !is_of_another_rank(error));
        if let Some(cause) = results.iter().position(is_cause)
            && let Some(Err(error)) = results.swap_remove(cause)
        {
            return Err(error);
        }
        let results = results.into_iter().enumerate();
        let results = results.filter_map(|(stage, result)| Some((stage, result?)));
        results
            .map(|(stage, result)| Ok((stage, result?)))
            .collect()
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
                let result = guard(Place::Visit(Part::LossStage), || visit(loss_stage));
                let _ = reply.send((worker.device, result));
            }
        }));
        let mut result = Err(PipelineError::Gone { device });
        self.collect(&replies, clock, &progress, call, |_, answer| {
            result = answer;
        })?;
        result
    }
}
