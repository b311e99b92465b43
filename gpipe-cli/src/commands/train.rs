//! `gpipe train`: the training loop, and what is said about it.

use std::time::Instant;

use gpipe_layers::{LearningRate, Optimizer, clip_factor};
use gpipe_remat::{
    Assembled, ModelPipeline, NonFinite, first_non_finite, gradient_norm, merge_ties, share_ties,
    update,
};
use gpipe_sched::{PipelineError, Timeline};
use gpipe_tensor::Device;

use super::plan;
use super::story::Story;
use crate::args::{Talk, TrainArgs};
use crate::config::{self, Config};
use crate::data::{self, Samples};
use crate::fail::{Fail, Result};
use crate::output::NewRun;
use crate::report::{Record, Tracer};
use crate::setup::Setup;

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

/// The training loop: `after` is shown every step and may use the pipeline before the next.
pub fn training_loop(
    recipe: &Recipe,
    run: &mut Assembled,
    steps: u64,
    mut after: impl FnMut(&mut ModelPipeline, &Device, Step) -> Result<()>,
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
    for step in 1..=steps {
        let started = Instant::now();
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
        let peak_bytes = devices.iter().map(Device::peak_bytes).collect();
        let timeline = outcome.timeline;
        after(
            pipeline,
            transit,
            Step {
                step,
                loss,
                grad_norm,
                lr,
                seconds,
                timeline,
                peak_bytes,
            },
        )?;
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

/// Trains as configured.
pub fn run(args: &TrainArgs, talk: Talk) -> Result<()> {
    let config = config::resolve(&args.settings)?;
    if args.dry_run {
        return plan::show(&config, talk);
    }
    let folder = NewRun::choose(args.out.as_deref(), args.overwrite)?;
    let samples = Samples::new(data::tokens(&config.data.source)?, &config)?;
    let mut setup = Setup::new(&config)?;
    setup.open_weights(&config)?;
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
    let folder = folder.create(&config)?;
    let mut story = Story::begin(&config, &samples, forecast, tracer, folder, talk)?;
    if !ascends {
        story.warn(
            "this schedule does not add up gradients in the order of micro-batches: the results are \
             not, bit for bit, those of one stage or of the other schedules",
        )?;
    }
    training_loop(
        &recipe,
        &mut assembled,
        config.run.steps.u64(),
        |pipeline, device, step| {
            let number = step.step;
            story.step(step)?;
            let every = config.run.eval_every.u64();
            if every > 0 && number % every == 0 {
                let held_out = samples.held_out();
                let tokens = (held_out.end - held_out.start) * samples.length() as u64;
                story.evaluation(number, evaluate(&recipe, pipeline, device, number)?, tokens)?;
            }
            Ok(())
        },
    )?;
    story.end()
}

/// The mean loss over the held-out samples.
pub fn evaluate(
    recipe: &Recipe,
    pipeline: &mut ModelPipeline,
    device: &Device,
    step: u64,
) -> Result<f64> {
    let (size, parts) = (
        recipe.config.data.batch_size.get(),
        recipe.config.pipeline.micro_batches.get(),
    );
    let mut loss = 0.0;
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
    }
    Ok(loss)
}
