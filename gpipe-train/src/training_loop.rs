//! The training loop.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use gpipe_data::Dataset;
use gpipe_layers::{LearningRate, Optimizer};
use gpipe_remat::{
    Assembled, ModelPipeline, NonFinite, WireCodec, first_non_finite, optimizer_step,
    step_with_retry,
};
use gpipe_sched::Timeline;
use gpipe_tensor::Device;

use crate::config::TrainConfig;
use crate::error::{BoxedError, Error, NonFiniteStep, Result, with_key};
use crate::evaluated_classes::evaluated_classes;
use crate::evaluation::Evaluation;
use crate::launch::check_same_files;
use crate::machine;

/// The inputs of [`train`] and [`evaluate`] besides the pipeline.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The complete configuration.
    pub config: &'a TrainConfig,
    /// The training samples.
    pub dataset: &'a Dataset,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate as a function of the step, from 0.
    pub learning_rate: LearningRate,
}

/// The result of a training step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The number of the step, from 0.
    pub step: u64,
    /// The mean loss over the targets of the batch, before the update.
    pub loss: f64,
    /// The global gradient norm, before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub lr: f64,
    /// The duration of the step, from drawing the batch to the updated parameters.
    pub seconds: f64,
    /// The longest time that a worker thread spent on actions.
    pub host_seconds: f64,
    /// The CPU time of all threads; `None` where the system does not report it.
    pub cpu_seconds: Option<f64>,
    /// The measured timeline.
    pub timeline: Timeline,
    /// The peak bytes of each stage.
    pub peak_bytes: Vec<u64>,
    /// The most bytes of messages that any rank of this replica held at a time; `None` without other ranks.
    pub message_bytes: Option<u64>,
}

/// Runs training steps, counted from 0. `on_step` is called after each step with the pipeline, its
/// transit device and the result, and decides whether to continue.
///
/// # Errors
/// [`Error::Step`] if a stage fails, or for a loss or gradient that is not finite; failures of `on_step`.
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
        groups,
        before,
        ..
    } = run;
    let parts = config.pipeline.micro_batches.get();
    let clip = config.optimizer.clip_norm.get();
    let mut slowest = 0.0_f64;
    for step in steps {
        let started = Instant::now();
        let used = machine::cpu_time();
        if let Some(world) = pipeline.world() {
            // Those of evaluations and checkpoints do not count.
            world.take_most_bytes();
        }
        let batch = || match (*before, groups.replicas()) {
            (0, 1) => gpipe_data::training_batch(dataset, transit, parts, step),
            (0, _) => gpipe_data::training_batch_of_replica(dataset, transit, *groups, step),
            _ => gpipe_data::training_batch_of_groups(dataset, transit, *groups, step),
        };
        let failed = |is_before_update, source: BoxedError| Error::Step {
            step: step + 1,
            is_before_update,
            source: with_key(source),
        };
        let unchanged = |source: BoxedError| failed(true, source);

        // Other ranks may have their batch, and wait for what this one has of it.
        let drawn = batch().map_err(|error| {
            let first = pipeline.refuse_step(&error.to_string());
            unchanged(first.map_or_else(|| error.into(), Into::into))
        })?;
        let outcome =
            step_with_retry(pipeline, drawn, batch).map_err(|error| unchanged(error.into()))?;
        let loss = groups.sum(&outcome.losses);
        let lr = learning_rate.lr_at(step);
        let stats = match loss.is_finite() {
            true => optimizer_step(pipeline, optimizer, lr, step, clip),
            false => Err(gpipe_remat::Error::NonFiniteGradients { norm: loss }),
        };
        let stats = match stats {
            Err(gpipe_remat::Error::NonFiniteGradients { norm }) => {
                let batch = batch().map_err(|error| unchanged(error.into()))?;
                let first = first_non_finite(pipeline, batch);
                let first = first.map_err(|error| unchanged(error.into()))?;
                return Err(unchanged(not_finite(first, norm).into()).into());
            }
            // The update may have reached some parameters.
            stats => stats.map_err(|error| failed(false, error.into()))?,
        };

        let (peak_bytes, message_bytes) =
            held_bytes(pipeline, devices).map_err(|error| failed(false, error.into()))?;
        let made = Step {
            step,
            loss,
            grad_norm: stats.grad_norm,
            lr: stats.lr,
            seconds: started.elapsed().as_secs_f64(),
            host_seconds: outcome.host_seconds.iter().copied().fold(0.0, f64::max),
            cpu_seconds: used.and_then(machine::cpu_seconds_since),
            timeline: outcome.timeline,
            peak_bytes,
            message_bytes,
        };
        slowest = slowest.max(made.seconds);
        pipeline.set_deadline(config.run.watchdog.deadline(Some(slowest)));
        if on_step(pipeline, transit, made)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The peak bytes of each stage, of all ranks, and the most of messages on any of them.
fn held_bytes(
    pipeline: &mut ModelPipeline,
    devices: &[Device],
) -> std::result::Result<(Vec<u64>, Option<u64>), gpipe_sched::PipelineError> {
    let Some(world) = pipeline.world() else {
        return Ok((devices.iter().map(Device::peak_bytes).collect(), None));
    };
    let messages = world.take_most_bytes();
    let of_stage = move |_, stage: &mut gpipe_remat::LayerStage| {
        Ok::<_, gpipe_remat::Error>((stage.device().peak_bytes(), messages))
    };
    let codec = WireCodec::of(pipeline);
    let (peaks, messages): (Vec<u64>, Vec<u64>) = pipeline
        .gather_across(&codec, of_stage)?
        .into_iter()
        .unzip();
    Ok((peaks, messages.into_iter().max()))
}

/// Aborts before the update: NaN or infinity would reach every parameter.
fn not_finite(first: Option<NonFinite>, grad_norm: f64) -> NonFiniteStep {
    let fault = first.map_or_else(
        || format!("the norm of the gradients is {grad_norm}"),
        |first| first.to_string(),
    );
    NonFiniteStep(format!("{fault}: lower `optimizer.lr`"))
}

/// Evaluates the model on the held-out samples, forward only, after `steps` training steps. Of several replicas each
/// evaluates its share of the batches; the result is the same on all of them, and to the bit that of one.
///
/// # Errors
/// [`Error::Invalid`] if no sample is held out; if a sample cannot be read; [`Error::Run`] if a stage fails, or another rank,
/// and for a model whose logits are not finite, of which nothing can be said.
pub fn evaluate(
    recipe: &Recipe<'_>,
    pipeline: &mut ModelPipeline,
    device: &Device,
    steps: u64,
) -> Result<Evaluation> {
    let found = evaluate_unless(recipe, pipeline, device, steps, None)?;
    match found {
        Some(found) if !found.loss.is_finite() => Err(Error::diverged()),
        Some(found) => Ok(found),
        None => Err(Error::run("the evaluation was stopped")),
    }
}

/// As [`evaluate`]; `None` once `should_stop` returns true on any rank, which is asked before each batch.
pub(crate) fn evaluate_unless(
    recipe: &Recipe<'_>,
    pipeline: &mut ModelPipeline,
    device: &Device,
    steps: u64,
    should_stop: Option<&dyn Fn() -> bool>,
) -> Result<Option<Evaluation>> {
    let (size, parts) = (
        recipe.config.data.batch_size.get(),
        recipe.config.pipeline.micro_batches.get(),
    );
    if let Some(world) = pipeline.world() {
        check_same_files(world, recipe.dataset, None)?;
    }
    let samples = recipe.dataset.held_out();
    if samples.is_empty() {
        return Err(Error::invalid(
            "no sample is held out: open the data with `run.eval_every = 100`, or all of it by `held_out_dataset`",
        ));
    }
    let failed = |error| Error::run_in(format!("evaluation after step {steps}"), error);
    let share = [pipeline.replica(), pipeline.replicas()];
    let batches = gpipe_data::evaluation_batches_of_replica(
        recipe.dataset,
        device,
        size,
        parts,
        steps,
        share,
    );
    let mut batches = batches?;
    let all = ((samples.end - samples.start) as usize).div_ceil(size);
    // Of each batch of this replica: its loss and its targets that were predicted, then these by classes.
    let mut own = Vec::with_capacity(batches.len());
    for _ in 0..all.div_ceil(share[1]) {
        if let Some(should_stop) = should_stop
            && pipeline.any(should_stop()).map_err(failed)?
        {
            return Ok(None);
        }
        // Every rank makes as many calls.
        let batch = batches.next().transpose().map_err(|error| {
            // Other ranks may have theirs, and wait for what this one has of it.
            let first = pipeline.refuse_step(&error.to_string());
            first.map_or_else(|| error.into(), failed)
        })?;
        let loss = match batch {
            Some(batch) => Some(pipeline.forward(batch).map_err(failed)?.losses),
            None => {
                pipeline.forward_of_others().map_err(failed)?;
                None
            }
        };
        let codec = WireCodec::of(pipeline);
        let (correct, predictions) = pipeline
            .with_loss_stage_across(&codec, |turn| {
                Ok::<_, gpipe_remat::Error>((turn.correct(), turn.predictions()))
            })
            .map_err(failed)?;
        own.extend(loss.map(|losses| ((losses.iter().sum::<f64>(), correct), predictions)));
    }
    let of_replicas = match share[1] {
        1 => vec![own],
        _ => {
            let codec = WireCodec::of(pipeline);
            let told = move |stage, _: &mut gpipe_remat::LayerStage| {
                Ok::<_, gpipe_remat::Error>((stage == 0).then(|| own.clone()))
            };
            let told = pipeline.gather_replicas(&codec, told).map_err(failed)?;
            let first = told.into_iter().map(|stages| stages.into_iter().flatten());
            first
                .map(|mut first| first.next().unwrap_or_default())
                .collect()
        }
    };
    let targets = recipe.dataset.held_out_targets();
    let (mut loss, mut correct, mut counts) = (0.0, 0, BTreeMap::new());
    // In the order of the batches, as one replica adds them.
    for batch in 0..all {
        let of_replica = &of_replicas[batch % share[1]];
        if let Some(((of_batch, right), predictions)) = of_replica.get(batch / share[1]) {
            loss += of_batch;
            correct += right;
            for &((target, predicted), count) in predictions {
                *counts.entry([target, predicted]).or_default() += count;
            }
        }
    }
    Ok(Some(Evaluation {
        loss,
        accuracy: correct as f64 / targets as f64,
        targets,
        classes: evaluated_classes(recipe.config, &counts)?,
    }))
}

#[cfg(test)]
mod tests {
    use gpipe_data::Vocabulary;

    use super::*;
    use crate::config::{Overrides, Setting};
    use crate::dataset::dataset;
    use crate::setup::Setup;

    /// The mean over no targets is not a loss of 0.
    #[test]
    fn an_evaluation_of_no_samples_is_refused() {
        let settings = [
            Setting::new("model.width", 16),
            Setting::new("model.blocks", 1),
            Setting::new("data.seq_len", 8),
            Setting::new("pipeline.stages", 1),
            Setting::new("pipeline.threads", 1),
        ];
        let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
        assert_eq!(config.run.eval_every.get(), 0);
        let setup = Setup::new(&config).unwrap();
        let recipe = Recipe {
            config: &config,
            dataset: &dataset(&config, &Vocabulary::bytes()).unwrap(),
            optimizer: setup.optimizer.clone(),
            learning_rate: setup.learning_rate.clone(),
        };
        let mut run = setup.assemble(&config).unwrap();
        let found = evaluate(&recipe, &mut run.pipeline, &run.transit, 0);
        let error = found.map(|found| format!("{found:?}")).unwrap_err();
        assert!(error.is_input_error() && error.to_string().starts_with("no sample is held out: "));
    }
}
