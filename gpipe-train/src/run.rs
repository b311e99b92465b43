//! A run with all that belongs to it: checkpoints, evaluation, a folder with events and timelines.

use std::ops::ControlFlow;
use std::path::PathBuf;

use gpipe_data::Dataset;
use gpipe_hf::Companions;
use gpipe_layers::{LearningRate, Optimizer};
use gpipe_remat::Assembled;
use gpipe_report::{NewRun, Tracer};

use crate::autosave::Autosave;
use crate::dataset::dataset;
use crate::error::Result;
use crate::progress::ProgressReporter;
use crate::progress_sink::ProgressSink;
use crate::resume::{self, StartPoint};
use crate::setup::{Forecast, Setup};
use crate::training_loop::{Recipe, evaluate, train};

/// Where a run writes.
pub struct RunOptions {
    /// The run's folder, unless the run goes on in the folder that it has.
    pub folder: NewRun,
    /// Where compiled kernels for GPUs are kept, if anywhere.
    pub kernel_cache: Option<PathBuf>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// All steps were made.
    Finished,
    /// It was asked to stop, and did after this step.
    Stopped(u64),
}

/// A run whose workers have started; nothing was written yet.
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
    /// Reads the data, checks that everything fits, and starts the workers.
    ///
    /// # Errors
    /// If anything that was asked for cannot be done here.
    pub fn new(start: StartPoint, options: RunOptions) -> Result<Self> {
        let config = &start.config;
        let (made, drawn) = start.position();
        let dataset = dataset(config, &start.vocabulary.vocabulary)?.resumed_at(made, drawn);
        let mut setup = Setup::new(config)?.with_kernel_cache(options.kernel_cache.as_deref());
        if start.resumed.is_none() {
            setup.open_weights(config)?;
        }
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

    /// Makes the run's folder and trains. `should_stop` is asked after every step: the run then saves
    /// and ends.
    ///
    /// # Errors
    /// If a step, an evaluation or a checkpoint fails, or `sink` does. However the loop ends, the
    /// checkpoint that is being written becomes whole.
    pub fn train<S: ProgressSink>(
        self,
        sink: &mut S,
        should_stop: impl Fn() -> bool,
    ) -> std::result::Result<RunEnd, S::Error> {
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
        let made = started.made;
        let mut autosave = autosave(&recipe, &started, &assembled, companions)?;
        let mut progress =
            ProgressReporter::begin(&config, &dataset, forecast, tracer, started, sink)?;
        if let Some(warning) = &vocabulary.warning {
            progress.note(warning)?;
        }
        if !is_ascending {
            progress.note(
                "this schedule does not add up gradients in the order of micro-batches: the results are \
                 not, bit for bit, those of one stage or of the other schedules",
            )?;
        }
        let mut end = RunEnd::Finished;
        let ended = train(
            &recipe,
            &mut assembled,
            made..steps,
            |pipeline, device, step| {
                // For people and in files steps count from 1.
                let number = step.step + 1;
                progress.step(step)?;
                let mut held_out_loss = None;
                if config.run.eval_every.divides(number) {
                    let found = evaluate(&recipe, pipeline, device, number)?;
                    progress.evaluation(number, &found)?;
                    held_out_loss = Some(found.loss);
                }
                progress.saved(autosave.poll()?)?;
                let stop = should_stop() && number < steps;
                if stop || autosave.is_due(number, held_out_loss) {
                    progress.saved(autosave.save(pipeline, number, held_out_loss)?)?;
                }
                if stop {
                    end = RunEnd::Stopped(number);
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            },
        );
        // However the loop ended, the checkpoint that is being written becomes whole.
        let written = autosave
            .finish()
            .map_err(S::Error::from)
            .and_then(|saved| progress.saved(saved));
        ended.and(written)?;
        match end {
            RunEnd::Finished => progress.end()?,
            RunEnd::Stopped(step) => progress.stopped(step)?,
        }
        Ok(end)
    }
}

fn autosave<'a>(
    recipe: &'a Recipe<'a>,
    started: &resume::StartedRun,
    assembled: &Assembled,
    companions: Companions,
) -> Result<Autosave<'a>> {
    let (folder, best) = (&started.folder, started.best);
    Autosave::new(recipe, folder, best, &assembled.transit, companions)
}
