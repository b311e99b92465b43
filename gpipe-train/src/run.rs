//! A complete training run: data, workers, checkpoints, evaluation, and a folder with events.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gpipe_data::Dataset;
use gpipe_layers::{LearningRate, Optimizer};
use gpipe_remat::Assembled;
use gpipe_report::{NewRun, Tracer};

use crate::autosave::Autosave;
use crate::dataset::dataset;
use crate::error::{Error, Result, one_line};
use crate::progress::ProgressReporter;
use crate::progress_sink::ProgressSink;
use crate::resume::{self, StartPoint};
use crate::setup::{Forecast, Setup};
use crate::training_loop::{Recipe, evaluate, train};

/// The folders that a run writes to.
#[non_exhaustive]
pub struct RunOptions {
    /// The folder of the run; ignored by a resumed run that continues in its own folder.
    pub folder: NewRun,
    /// The folder of compiled CUDA kernels; `None` compiles them in each run.
    pub kernel_cache: Option<PathBuf>,
}

impl RunOptions {
    /// A run in this folder, without a kernel cache.
    pub fn new(folder: NewRun) -> Self {
        Self {
            folder,
            kernel_cache: None,
        }
    }

    /// Keeps compiled CUDA kernels in a folder.
    #[must_use]
    pub fn kernel_cache(mut self, folder: Option<PathBuf>) -> Self {
        self.kernel_cache = folder;
        self
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// All steps were made.
    Finished,
    /// `should_stop` stopped it after this step, which counts from 1.
    Stopped(u64),
}

/// A run whose workers have started and which has not written anything yet.
pub struct PreparedRun {
    start: StartPoint,
    folder: NewRun,
    dataset: Dataset,
    assembled: Assembled,
    forecast: Forecast,
    tracer: Tracer,
    optimizer: Optimizer,
    learning_rate: LearningRate,
    is_ascending: bool,
}

impl PreparedRun {
    /// Reads the data, checks configuration and memory, and starts the workers.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) or [`Error::Input`](crate::Error::Input) if the
    /// configuration cannot be run on this machine; [`Error::Run`](crate::Error::Run) if workers or memory
    /// fail.
    pub fn new(start: StartPoint, options: RunOptions) -> Result<Self> {
        let config = &start.config;
        let (made, drawn) = start.position();
        let dataset = dataset(config, &start.vocabulary.vocabulary)?.resumed_at(made, drawn);
        let mut setup = Setup::new(config)?.with_kernel_cache(options.kernel_cache.as_deref());
        if start.resumed.is_none() {
            setup.open_weights(config)?;
        }
        setup.check_saveable(config, &start.companions)?;
        setup.check_memory(config)?;
        let forecast = setup.forecast()?;
        let steps = (*config.run.trace_steps).clone();
        let (record, most) = (setup.record(config)?, steps.most());
        Ok(Self {
            dataset,
            forecast,
            tracer: Tracer::new(record, most, move |step| steps.may_keep(step)),
            optimizer: setup.optimizer.clone(),
            learning_rate: setup.learning_rate.clone(),
            is_ascending: setup.schedule.is_ascending(),
            assembled: setup.assemble(config)?,
            folder: options.folder,
            start,
        })
    }

    /// Creates the folder of the run and trains. `should_stop` is called after every step; if it returns
    /// true, the run saves and ends.
    ///
    /// # Errors
    /// Failures of a step, an evaluation or a checkpoint, and of `sink` to take an event. Unless the
    /// parameters were lost with the failure, they are saved first; a checkpoint in progress is completed
    /// in any case. The error names the newest one.
    pub fn train<S: ProgressSink>(
        self,
        sink: &mut S,
        should_stop: impl Fn() -> bool,
    ) -> Result<RunEnd> {
        let Self {
            start:
                StartPoint {
                    config,
                    resumed,
                    vocabulary,
                    companions,
                },
            folder,
            dataset,
            mut assembled,
            forecast,
            tracer,
            optimizer,
            learning_rate,
            is_ascending,
        } = self;
        let recipe = Recipe {
            config: &config,
            dataset: &dataset,
            optimizer,
            learning_rate,
        };
        let steps = config.run.steps.u64();
        let started = resume::begin(&recipe, folder, resumed, &mut assembled)?;
        let mut made = started.made;
        let mut autosave = Autosave::new(&recipe, &started, &assembled.transit, companions)?;
        let identity = started.identity.clone();
        let mut progress =
            ProgressReporter::begin(&config, &dataset, forecast, tracer, started, sink);
        if let Some(warning) = &vocabulary.warning {
            progress.note(warning);
        }
        if !is_ascending {
            progress.note(
                "this schedule does not add up gradients in the order of micro-batches: the results \
                 differ in rounding from those of one stage and of other schedules",
            );
        }
        progress.take_place(&identity)?;
        let trained = train(
            &recipe,
            &mut assembled,
            made..steps,
            |pipeline, device, step| {
                // Reports and checkpoints count steps from 1.
                made = step.step + 1;
                progress.step(step);
                let mut held_out_loss = None;
                if config.run.eval_every.divides(made) {
                    let found = evaluate(&recipe, pipeline, device, made)?;
                    progress.evaluation(made, &found);
                    held_out_loss = Some(found.loss);
                }
                progress.saved(autosave.poll().map_err(Cause::Save)?);
                let stop = (should_stop() || progress.has_lost_reader()) && made < steps;
                if stop || autosave.is_due(made, held_out_loss) {
                    let before = autosave.save(pipeline, made, held_out_loss);
                    progress.saved(before.map_err(Cause::Save)?);
                }
                Ok(match stop {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            },
        );
        // Complete the checkpoint in progress, even after a failure.
        let written = autosave.finish().map(|saved| progress.saved(saved));
        let before = autosave.newest().map(Path::to_owned);
        let failed = match (trained, written) {
            (Err(Cause::Work(error)), _) => {
                if error.leaves_parameters() && autosave.newest_step() < made {
                    match autosave.save_last(&mut assembled.pipeline, made) {
                        Ok(saved) => progress.saved(saved),
                        Err(fault) => progress.warning(&format!(
                            "the state after step {made} is not saved: {}",
                            one_line(&fault)
                        )),
                    }
                }
                Some(error)
            }
            (Err(Cause::Save(error)), _) | (Ok(()), Err(error)) => Some(error),
            (Ok(()), Ok(())) => progress.lost_reader(),
        };
        if let Some(error) = failed {
            let left = autosave.left(&error, made, before.as_deref());
            return Err(progress.failed(error, made, &left, autosave.newest()));
        }
        if made < steps {
            progress.stopped(made);
            return Ok(RunEnd::Stopped(made));
        }
        progress.end();
        Ok(RunEnd::Finished)
    }
}

/// Why a run ends before its last step.
enum Cause {
    /// A step or an evaluation failed.
    Work(Error),
    /// A checkpoint was not saved; another attempt would fail too.
    Save(Error),
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Work(error)
    }
}
