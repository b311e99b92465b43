//! The training loop.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use gpipe_data::Dataset;
use gpipe_layers::{LearningRate, Optimizer};
use gpipe_remat::{Assembled, ModelPipeline, NonFinite, first_non_finite, optimizer_step};
use gpipe_sched::Timeline;
use gpipe_tensor::Device;

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::machine;

/// What a training loop needs besides the pipeline.
pub struct Recipe<'a> {
    /// The whole configuration.
    pub config: &'a TrainConfig,
    /// What is learned from.
    pub dataset: &'a Dataset,
    /// How parameters follow gradients.
    pub optimizer: Optimizer,
    /// How fast, by steps from 0.
    pub learning_rate: LearningRate,
}

/// One training step, as it was.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// Its number, from 0.
    pub step: u64,
    /// Mean over the targets of the batch, before the update.
    pub loss: f64,
    /// Of all gradients together, before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub lr: f64,
    /// Seconds from the batch to the shared parameters.
    pub seconds: f64,
    /// The most seconds that a worker's thread was at its actions.
    pub host_seconds: f64,
    /// Processor time of all threads meanwhile, where the system tells it.
    pub cpu_seconds: Option<f64>,
    /// Who worked when.
    pub timeline: Timeline,
    /// Most bytes that each stage held.
    pub peak_bytes: Vec<u64>,
}

/// Makes these steps (numbers from 0). `on_step` is shown every one, may use the pipeline before the
/// next, and says whether there is to be one.
///
/// # Errors
/// That of a stage, of `on_step`, or [`Error::Run`] for a loss or a gradient that is not finite: the
/// parameters are then those of the step before.
pub fn train<E: From<Error>>(
    recipe: &Recipe<'_>,
    run: &mut Assembled,
    steps: Range<u64>,
    mut on_step: impl FnMut(
        &mut ModelPipeline,
        &Device,
        Step,
    ) -> std::result::Result<ControlFlow<()>, E>,
) -> std::result::Result<(), E> {
    let Recipe {
        config,
        dataset,
        optimizer,
        learning_rate,
    } = recipe;
    let Assembled {
        pipeline,
        devices,
        transit,
    } = run;
    let parts = config.pipeline.micro_batches.get();
    let clip = config.optimizer.clip_norm.get();
    let mut slowest = 0.0_f64;
    for step in steps {
        let started = Instant::now();
        let used = machine::cpu_time();
        let batch = || gpipe_data::training_batch(dataset, transit, parts, step);
        let failed = |error: gpipe_remat::Error| Error::run_in(format!("step {}", step + 1), error);

        let outcome = pipeline.step(batch().map_err(Error::from)?);
        let outcome = outcome.map_err(|error| failed(error.into()))?;
        slowest = slowest.max(outcome.timeline.makespan());
        pipeline.set_deadline(config.run.watchdog.deadline(slowest));
        let loss: f64 = outcome.losses.iter().sum();
        let lr = learning_rate.lr_at(step);
        let stats = match loss.is_finite() {
            true => optimizer_step(pipeline, optimizer, lr, step, clip),
            false => Err(gpipe_remat::Error::NonFiniteGradients { norm: loss }),
        };
        let stats = match stats {
            Err(gpipe_remat::Error::NonFiniteGradients { norm }) => {
                let batch = batch().map_err(Error::from)?;
                let first =
                    first_non_finite(pipeline, batch).map_err(|error| failed(error.into()))?;
                return Err(not_finite(step, first, norm).into());
            }
            stats => stats.map_err(failed)?,
        };

        let made = Step {
            step,
            loss,
            grad_norm: stats.grad_norm,
            lr: stats.lr,
            seconds: started.elapsed().as_secs_f64(),
            host_seconds: outcome.host_seconds.iter().copied().fold(0.0, f64::max),
            cpu_seconds: used.and_then(machine::cpu_seconds_since),
            timeline: outcome.timeline,
            peak_bytes: devices.iter().map(Device::peak_bytes).collect(),
        };
        if on_step(pipeline, transit, made)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Aborts before the update: NaN or infinity would reach every parameter.
fn not_finite(step: u64, first: Option<NonFinite>, grad_norm: f64) -> Error {
    let fault = first.map_or_else(
        || format!("the norm of the gradients is {grad_norm}"),
        |first| first.to_string(),
    );
    let mend = "lower `optimizer.lr`, or set `optimizer.clip_norm`";
    Error::run(format!("step {}: {fault}: {mend}", step + 1))
}

/// The result of an evaluation on held-out samples.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Mean over the targets.
    pub loss: f64,
    /// Share of the targets to which the model gave the highest score.
    pub accuracy: f64,
    /// Tokens or images.
    pub targets: u64,
}

/// Evaluates the model on the held-out samples, forward only, after `steps` steps.
///
/// # Errors
/// That of a stage.
pub fn evaluate(
    recipe: &Recipe<'_>,
    pipeline: &mut ModelPipeline,
    device: &Device,
    steps: u64,
) -> Result<Evaluation> {
    let (size, parts) = (
        recipe.config.data.batch_size.get(),
        recipe.config.pipeline.micro_batches.get(),
    );
    let targets = recipe.dataset.held_out_targets();
    let (mut loss, mut correct) = (0.0, 0);
    for batch in gpipe_data::evaluation_batches(recipe.dataset, device, size, parts, steps)? {
        let failed = |error| Error::run_in(format!("evaluation after step {steps}"), error);
        let outcome = pipeline.forward(batch).map_err(failed)?;
        loss += outcome.losses.iter().sum::<f64>();
        correct += pipeline
            .with_loss_stage(|turn| Ok::<_, gpipe_remat::Error>(turn.correct()))
            .map_err(failed)?;
    }
    Ok(Evaluation {
        loss,
        accuracy: correct as f64 / targets as f64,
        targets,
    })
}
