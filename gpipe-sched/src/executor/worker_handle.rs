//! The caller's side of a worker: the handle of its thread, and what the thread begins and ends with.

use std::error::Error;
use std::sync::Arc;

use crate::executor::failure::{PipelineError, Place, guard};
use crate::executor::mailboxes::Mailboxes;
use crate::executor::part::Part;
use crate::executor::stage::Stage;
use crate::executor::sync::{mpsc, thread};
use crate::executor::worker::Worker;

pub(crate) type Job<S, T> = Box<dyn FnOnce(&mut Worker<S, T>) + Send>;

/// The caller's handle of one worker.
pub(crate) struct WorkerHandle<S: Stage, T> {
    /// `None` while the pipeline is being dropped, and for a device of another rank.
    pub jobs: Option<mpsc::Sender<Job<S, T>>>,
    pub thread: Option<thread::JoinHandle<()>>,
    /// The worker missed a deadline and is abandoned.
    pub lost: bool,
    /// The device belongs to another rank.
    pub is_far: bool,
}

impl<S: Stage, T> WorkerHandle<S, T> {
    /// In the place of a worker of another rank.
    pub fn far() -> Self {
        Self {
            jobs: None,
            thread: None,
            lost: false,
            is_far: true,
        }
    }

    /// A worker that is gone drops the job, and with it the sender of the answer.
    pub fn give(&self, job: Job<S, T>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

/// Closes the mailboxes when a worker's thread ends for any cause, so that no other worker waits
/// for it.
pub(crate) struct CloseOnExit<F>(pub Arc<Mailboxes<F>>);

impl<F> Drop for CloseOnExit<F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Builds a worker, on its own thread.
pub(crate) fn make<S: Stage, T, E, G>(
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
