//! A complete training run: data, workers, checkpoints, evaluation, and a folder with events.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gpipe_data::Dataset;
use gpipe_layers::{LearningRate, Optimizer};
use gpipe_remat::{Assembled, Lender};
use gpipe_report::{NewRun, Tracer, numbers};
use gpipe_sched::{Parcel, World};
use gpipe_tensor::DeviceId;

use crate::autosave::{Autosave, give};
use crate::config::TrainConfig;
use crate::dataset::training_dataset;
use crate::error::{Error, Result, one_line};
use crate::launch::{check_alike, check_replicas, check_same_files, stopping};
use crate::nccl::chosen;
use crate::precision;
use crate::progress::ProgressReporter;
use crate::progress_sink::ProgressSink;
use crate::resume::{self, StartPoint};
use crate::setup::{Forecast, Setup};
use crate::training_loop::{Recipe, evaluate_unless, train};

/// The folders that a run writes to.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// The folder of the run; ignored by a resumed run that continues in its own folder.
    pub folder: NewRun,
    /// The folder of compiled CUDA kernels; `None` compiles them in each run.
    pub kernel_cache: Option<PathBuf>,
    /// The ranks that the stages are run over; folder, output and report are those of rank 0.
    pub world: Option<Arc<World>>,
}

impl RunOptions {
    /// A run in this folder, without a kernel cache.
    pub fn new(folder: NewRun) -> Self {
        Self {
            folder,
            kernel_cache: None,
            world: None,
        }
    }

    /// Runs the stages over the ranks of a world.
    #[must_use]
    pub fn over(mut self, world: Option<Arc<World>>) -> Self {
        self.world = world;
        self
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
#[derive(Debug)]
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
    /// Of ranks with different processors, and of a classifier that begins anew.
    warnings: Vec<String>,
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
        let warning = match &options.world {
            Some(world) => check_alike(world, config)?,
            None => None,
        };
        let (made, drawn) = start.position();
        let classes = gpipe_hf::class_names(&start.companions.ids);
        let dataset = training_dataset(config, &start.vocabulary.vocabulary, classes)?;
        let dataset = dataset.resumed_at(made, drawn);
        if let Some(world) = &options.world {
            let resumed = start.resumed.as_ref();
            check_same_files(world, &dataset, resumed.map(|resumed| &resumed.checkpoint))?;
        }
        check_replicas(options.world.as_deref(), config)?;
        let mut setup = Setup::over(config, options.world.as_ref())?
            .with_kernel_cache(options.kernel_cache.as_deref());
        if start.resumed.is_none() {
            setup.open_weights(config)?;
        }
        setup.check_saveable(config, &start.companions)?;
        let fits = setup.check_memory(config);
        if let Some(world) = &options.world {
            // None takes memory before all have looked how much there is.
            world.share(Parcel::default(), None).map_err(Error::run)?;
        }
        fits?;
        let warnings = warning.into_iter().chain(setup.warning.take()).collect();
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
            warnings,
        })
    }

    /// Creates the folder of the run and trains. `should_stop` is called after every step; if it returns
    /// true, the run saves and ends. Of a run that has made all its steps nothing is written.
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
        if self.start.is_finished() {
            return Ok(RunEnd::Finished);
        }
        let world = self.assembled.pipeline.world();
        if world.is_some_and(|world| world.rank() > 0) {
            return self.follow(should_stop);
        }
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
            warnings,
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
        let chosen = chosen(&config, assembled.nccl.as_ref())?;
        let of_world = assembled.pipeline.world().map(|world| {
            let messages = forecast.messages();
            let messages = messages.map_or(String::new(), |bytes| format!("; messages {bytes}"));
            of_world(world, &config) + &messages
        });
        let mut progress =
            ProgressReporter::begin(&config, &dataset, forecast, tracer, started, sink);
        if let Some(of_world) = of_world {
            progress.line(&of_world);
            if let Some(stopping) = stopping() {
                progress.line(stopping);
            }
        }
        if let Some(chosen) = chosen {
            progress.line(&chosen);
        }
        if let Some(advice) = precision::advice(&config) {
            progress.line(advice);
        }
        let of_data = dataset.warnings().iter();
        for warning in of_data.chain(&vocabulary.warning).chain(&warnings) {
            progress.warning(warning);
        }
        if !is_ascending {
            progress.warning(
                "this schedule does not add up gradients in the order of micro-batches: the results \
                 differ in rounding from those of one stage and of other schedules",
            );
        }
        // An earlier run in the folder stays until the first step is made, which may fail.
        let mut has_place = !progress.replaces();
        if has_place {
            progress.take_place(&identity)?;
        }
        let trained = train(
            &recipe,
            &mut assembled,
            made..steps,
            |pipeline, device, step| {
                // Reports and checkpoints count steps from 1.
                made = step.step + 1;
                if !has_place {
                    progress.take_place(&identity).map_err(Cause::Save)?;
                    has_place = true;
                }
                progress.step(step);
                let is_unread = progress.has_lost_reader();
                let should_stop = || should_stop() || is_unread;
                let mut held_out_loss = None;
                if config.run.eval_every.divides(made) {
                    let begun = Instant::now();
                    let found =
                        evaluate_unless(&recipe, pipeline, device, made, Some(&should_stop))?;
                    progress.evaluation(made, found.as_ref(), begun.elapsed());
                    held_out_loss = found.map(|found| found.loss);
                }
                progress.saved(autosave.poll().map_err(Cause::Save)?);
                let stop = should_stop() || progress.has_lost_reader();
                let stop = pipeline.any(stop).map_err(Error::run)? && made < steps;
                let is_due = stop || autosave.is_due(made, held_out_loss);
                if pipeline.any(is_due).map_err(Error::run)? {
                    let is_last = stop || made == steps;
                    let before = autosave.save(pipeline, made, held_out_loss, is_last);
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
                let is_newer = error.leaves_parameters() && autosave.newest_step() < made;
                if assembled.pipeline.any(is_newer).unwrap_or(false) {
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

impl PreparedRun {
    /// The part of a rank that is not the first: it computes, and lends its parameters to rank 0, which decides when to
    /// save and to stop.
    fn follow(self, should_stop: impl Fn() -> bool) -> Result<RunEnd> {
        let Self {
            start: StartPoint {
                config, resumed, ..
            },
            dataset,
            mut assembled,
            optimizer,
            learning_rate,
            ..
        } = self;
        let recipe = Recipe {
            config: &config,
            dataset: &dataset,
            optimizer,
            learning_rate,
        };
        let host = assembled.transit.host();
        let copies = host.device(DeviceId::Cpu).map_err(Error::run)?;
        let mut made = match &resumed {
            Some(resumed) => resume::restore(&recipe, resumed, &mut assembled)?,
            None => 0,
        };
        let steps = config.run.steps.u64();
        let mut lender = Lender::default();
        let trained = train(
            &recipe,
            &mut assembled,
            made..steps,
            |pipeline, device, step| {
                made = step.step + 1;
                if config.run.eval_every.divides(made) {
                    evaluate_unless(&recipe, pipeline, device, made, Some(&should_stop))?;
                }
                let stop = pipeline.any(should_stop()).map_err(Error::run)? && made < steps;
                if pipeline.any(false).map_err(Error::run)? {
                    let is_last = stop || made == steps;
                    give(&recipe, pipeline, &copies, &mut lender, is_last)?;
                }
                Ok::<_, Error>(match stop {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            },
        );
        if trained.is_err() && assembled.pipeline.any(false).unwrap_or(false) {
            // The first error counts.
            let _ = give(&recipe, &mut assembled.pipeline, &copies, &mut lender, true);
        }
        // Rank 0 writes the last checkpoint, after a failure too.
        lender.wait();
        trained?;
        Ok(match made < steps {
            true => RunEnd::Stopped(made),
            false => RunEnd::Finished,
        })
    }
}

/// How the ranks of a run share it, in a line.
fn of_world(world: &World, config: &TrainConfig) -> String {
    let hosts: BTreeSet<String> = (0..world.ranks()).map(|rank| world.host(rank)).collect();
    let replicas = match config.pipeline.replicas.get() {
        1 => String::new(),
        replicas => format!(": {replicas} replicas of the pipeline"),
    };
    let divides = match config.pipeline.zero.get() {
        0 => "",
        _ => ", which divide the optimizer states",
    };
    format!(
        "{} on {}{replicas}{divides}",
        numbers::counted(world.ranks() as u64, "rank"),
        numbers::counted(hosts.len() as u64, "host"),
    )
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

#[cfg(test)]
mod tests;
