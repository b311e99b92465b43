//! `gpipe train`: the training loop, and what is said about it.

use std::ops::{ControlFlow, RangeInclusive};
use std::time::Instant;

use gpipe_layers::{LearningRate, Optimizer, clip_factor};
use gpipe_remat::{
    Assembled, ModelPipeline, NonFinite, first_non_finite, gradient_norm, merge_ties, share_ties,
    update,
};
use gpipe_sched::{PipelineError, Timeline};
use gpipe_tensor::Device;

use super::begin::{self, Beginning};
use super::saving::Saving;
use super::story::Story;
use super::{auto, plan};
use crate::args::{Talk, TrainArgs};
use crate::checkpoint::Resumed;
use crate::config::Config;
use crate::data::{self, Samples};
use crate::fail::{Fail, Result};
use crate::machine;
use crate::output::NewRun;
use crate::profile::Wanted;
use crate::report::{Record, Tracer};
use crate::setup::Setup;
use crate::signals::Signals;

/// One training step, as it was.
pub struct Step {
    /// From 1.
    pub step: u64,
    /// Mean over the targets of the batch, before the update.
    pub loss: f64,
    /// Of all gradients together, before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub lr: f64,
    /// From the batch to the shared parameters.
    pub seconds: f64,
    /// The most seconds that a worker's thread was at its actions.
    pub asking: f64,
    /// Processor time of all threads meanwhile.
    pub cpu_seconds: Option<f64>,
    /// Who worked when.
    pub timeline: Timeline,
    /// Most bytes that each stage held.
    pub peak_bytes: Vec<u64>,
}

/// What a training loop needs besides the pipeline.
pub struct Recipe<'a> {
    pub config: &'a Config,
    pub samples: &'a Samples,
    pub optimizer: Optimizer,
    pub learning_rate: LearningRate,
}

/// The training loop: `after` is shown every step, may use the pipeline before the next, and says
/// whether there is to be one.
pub fn training_loop(
    recipe: &Recipe,
    run: &mut Assembled,
    steps: RangeInclusive<u64>,
    mut after: impl FnMut(&mut ModelPipeline, &Device, Step) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let Recipe {
        config,
        samples,
        optimizer,
        learning_rate,
    } = recipe;
    let Assembled {
        pipeline,
        devices,
        transit,
    } = run;
    let mut slowest = 0.0_f64;
    for step in steps {
        let started = Instant::now();
        let used = machine::cpu_time();
        let failed = |error: PipelineError| {
            Fail::Run(anyhow::Error::new(error).context(format!("step {step}")))
        };

        let batch = data::training(samples, transit, config.pipeline.micro_batches.get(), step)?;
        let outcome = pipeline.step(batch).map_err(failed)?;
        slowest = slowest.max(outcome.timeline.makespan());
        pipeline.set_deadline(config.run.watchdog.deadline(slowest));
        let loss: f64 = outcome.losses.iter().sum();
        merge_ties(pipeline).map_err(failed)?;
        let grad_norm = gradient_norm(pipeline).map_err(failed)?;
        if !(loss.is_finite() && grad_norm.is_finite()) {
            let batch =
                data::training(samples, transit, config.pipeline.micro_batches.get(), step)?;
            let first = first_non_finite(pipeline, batch).map_err(failed)?;
            return Err(not_finite(step, first, grad_norm));
        }
        let lr = learning_rate.lr_at(step - 1);
        let factor = clip_factor(grad_norm, config.optimizer.clip_norm.get());
        update(pipeline, optimizer, lr, step, factor).map_err(failed)?;
        share_ties(pipeline).map_err(failed)?;

        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = used.and_then(machine::cpu_seconds_since);
        let peak_bytes = devices.iter().map(Device::peak_bytes).collect();
        let timeline = outcome.timeline;
        let made = Step {
            step,
            loss,
            grad_norm,
            lr,
            seconds,
            asking: outcome.asking.into_iter().fold(0.0, f64::max),
            cpu_seconds,
            timeline,
            peak_bytes,
        };
        if after(pipeline, transit, made)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// A number that is none would spread to every parameter with the update, so there is none: what is
/// saved is from before.
fn not_finite(step: u64, first: Option<NonFinite>, grad_norm: f64) -> Fail {
    let fault = first.map_or_else(
        || format!("the norm of the gradients is {grad_norm}"),
        |first| first.to_string(),
    );
    let mend = "lower --lr, or set --clip-norm";
    Fail::Run(anyhow::Error::msg(format!("step {step}: {fault}: {mend}")))
}

/// Trains as configured, from the beginning or from a checkpoint.
pub fn run(args: &TrainArgs, talk: Talk) -> Result<()> {
    let Beginning {
        mut config,
        resumed,
        tokens,
        companions,
    } = Beginning::of(args)?;
    let speed = Wanted {
        beside: args.settings.config.as_deref(),
        measure: args.profile,
    };
    if args.auto {
        config = auto::choose(&config, speed, talk)?;
    }
    if args.dry_run {
        let speed = Wanted {
            measure: false,
            ..speed
        };
        return plan::show(&config, speed, talk);
    }
    let (made, drawn) = resumed.as_ref().map_or((0, 0), Resumed::position);
    let steps = config.run.steps.u64();
    if made == steps {
        return begin::nothing_left(steps, talk);
    }
    let folder = NewRun::choose(args.out.as_deref(), args.overwrite)?;
    let samples = data::samples(&config, &tokens.vocabulary)?.after(made, drawn);
    let mut setup = Setup::new(&config)?;
    if resumed.is_none() {
        setup.open_weights(&config)?;
    }
    setup.check_memory(&config)?;
    let forecast = setup.forecast()?;
    let recipe = Recipe {
        config: &config,
        samples: &samples,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let record = Record::begin(&setup, &config)?;
    let tracer = Tracer::new((*config.run.trace_steps).clone(), record);
    let ascends = setup.schedule.is_ascending();
    let mut assembled = setup.assemble(&config)?;
    let signals = Signals::note()?;
    let begun = begin::begin(&recipe, folder, resumed, &mut assembled)?;
    let mut saving = Saving::new(&recipe, &begun, &assembled.transit, companions)?;
    let mut story = Story::begin(&config, &samples, forecast, tracer, begun, talk)?;
    if let Some(warning) = &tokens.warning {
        story.warn(warning)?;
    }
    if !ascends {
        story.warn(
            "this schedule does not add up gradients in the order of micro-batches: the results are \
             not, bit for bit, those of one stage or of the other schedules",
        )?;
    }
    let mut stopped = None;
    let ended = training_loop(
        &recipe,
        &mut assembled,
        made + 1..=steps,
        |pipeline, device, step| {
            let number = step.step;
            story.step(step)?;
            let mut held_out_loss = None;
            if config.run.eval_every.divides(number) {
                let found = evaluate(&recipe, pipeline, device, number)?;
                story.evaluation(number, &found)?;
                held_out_loss = Some(found.loss);
            }
            story.saved(saving.poll()?)?;
            let stop = signals.asked_to_stop() && number < steps;
            if stop || saving.is_due(number, held_out_loss) {
                story.saved(saving.save(pipeline, number, held_out_loss)?)?;
            }
            if stop {
                stopped = Some(number);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        },
    );
    // However the loop ended, the checkpoint that is being written becomes whole.
    let written = saving.finish().and_then(|saved| story.saved(saved));
    ended.and(written)?;
    match stopped {
        None => story.end(),
        Some(step) => story.stopped(step).and(Err(Fail::Stopped)),
    }
}

/// How good a model is on the held-out samples.
pub struct Evaluation {
    /// Mean over the targets.
    pub loss: f64,
    /// Share of the targets to which the model gave the highest score.
    pub accuracy: f64,
    /// Tokens or images.
    pub targets: u64,
}

/// Evaluates the model on the held-out samples, forward only.
pub fn evaluate(
    recipe: &Recipe,
    pipeline: &mut ModelPipeline,
    device: &Device,
    step: u64,
) -> Result<Evaluation> {
    let (size, parts) = (
        recipe.config.data.batch_size.get(),
        recipe.config.pipeline.micro_batches.get(),
    );
    let held_out = recipe.samples.held_out();
    let targets = (held_out.end - held_out.start) * recipe.samples.length() as u64;
    let (mut loss, mut correct) = (0.0, 0);
    for batch in data::evaluation(recipe.samples, device, size, parts, step)? {
        let failed = |error| {
            Fail::Run(anyhow::Error::new(error).context(format!("evaluation after step {step}")))
        };
        loss += pipeline
            .forward(batch)
            .map_err(failed)?
            .losses
            .iter()
            .sum::<f64>();
        correct += pipeline
            .with_turn(|turn| Ok::<_, gpipe_remat::Error>(turn.correct()))
            .map_err(failed)?;
    }
    Ok(Evaluation {
        loss,
        accuracy: correct as f64 / targets as f64,
        targets,
    })
}
