//! Updates of the parameters from their gradients, in the functions that
//! [`optimizer_step`](crate::optimizer_step) consists of: [`sum_replicas`], [`merge_ties`], [`gradient_norm`],
//! [`apply_update`], [`share_ties`], [`commit_mini_batch`], in this order.
//!
//! Each result has the same bits for every number of stages: contributions of stages are combined in
//! layer order.

use std::collections::HashMap;

use gpipe_layers::{Kind, Optimizer, UpdateSettings};
use gpipe_sched::{LossStage, Pipeline, PipelineError};
use gpipe_tensor::ops::{self, AdamWBatch};
use gpipe_tensor::{Tensor, Tensors};

use crate::LayerStage;
use crate::wire::WireCodec;

/// Adds the gradients of the replicas of the pipeline, by the tree of their groups of micro-batches
/// ([`Groups`](gpipe_sched::Groups)): all have the sum then. Does nothing where there is one.
///
/// # Errors
/// If a stage fails, or the last step did.
pub fn sum_replicas<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<(), PipelineError> {
    if pipeline.replicas() == 1 {
        return Ok(());
    }
    let sum = pipeline.during("the sum of gradients over the replicas");
    sum.each(|_, stage| stage.sum_replicas())
}

/// Adds the gradients of tied places to those of their owners, in layer order; only once for the gradients of a step.
///
/// # Errors
/// If a stage fails.
pub fn merge_ties<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<(), PipelineError> {
    let task = "the merging of tied gradients";
    let codec = WireCodec::of(pipeline);
    let places = pipeline.during(task).gather_across(&codec, |_, stage| {
        let mut places: Vec<(String, Tensor)> = Vec::new();
        stage.try_params(|param| {
            if param.tied && !param.frozen {
                places.push((param.name.clone(), param.grad()?.clone()));
            }
            Ok(())
        })?;
        Ok::<_, crate::Error>(places)
    })?;
    let places: Vec<(String, Tensor)> = places.into_iter().flatten().collect();
    if places.is_empty() {
        return Ok(());
    }
    let merge = pipeline.during(task);
    merge.each(move |_, stage| stage.merge_ties(&places))
}

/// The global norm of the gradients of all owned parameters, except statistics
/// ([`Kind::Statistic`]), whose gradients are applied as they are. The sum of squares of each
/// parameter is computed separately and the sums are added in layer order, so the norm does not depend
/// on the cut.
///
/// # Errors
/// If a stage fails, or the last step did ([`Error::Unfinished`](crate::Error::Unfinished) is the source).
pub fn gradient_norm<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<f64, PipelineError> {
    Ok(gradient_norms(pipeline)?.norm)
}

/// Global norms of the gradients.
pub(crate) struct GradientNorms {
    /// Norm without statistics.
    pub norm: f64,
    /// Norm of the statistics alone.
    pub statistics: f64,
}

pub(crate) fn gradient_norms<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<GradientNorms, PipelineError> {
    let (codec, task) = (WireCodec::of(pipeline), "the gradient norm");
    let replicas = pipeline.during(task).gather_replicas(&codec, |_, stage| {
        stage.check_ended()?;
        let _busy = stage.device().clone().cpu_slot();
        let mut squares = Vec::new();
        let (mut grads, mut places): (Vec<Tensor>, Vec<usize>) = Default::default();
        stage.try_owned(|param, owner, is_own| {
            if !param.tied && !param.frozen {
                if is_own {
                    grads.push(param.grad()?.clone());
                    places.push(squares.len());
                }
                squares.push((owner.unwrap_or(0), (param.kind == Kind::Statistic, 0.0)));
            }
            Ok(())
        })?;
        let grads: Vec<&Tensor> = grads.iter().collect();
        for (place, square) in places.into_iter().zip(ops::sums_of_squares(&grads)?) {
            squares[place].1.1 = square;
        }
        Ok::<_, crate::Error>(squares)
    })?;
    let sum = |is_statistic: bool| -> f64 {
        let squares = replicas.first().into_iter().flatten().enumerate();
        let squares = squares.flat_map(|(stage, of_stage)| {
            let places = of_stage.iter().enumerate();
            places.map(move |(place, (owner, (statistic, _)))| (stage, place, *owner, *statistic))
        });
        let of_kind = squares.filter(|(_, _, _, statistic)| *statistic == is_statistic);
        // Of the replica that has the whole gradient. The sum of none is -0.0.
        let sum = of_kind.map(|(stage, place, owner, _)| replicas[owner][stage][place].1.1);
        sum.sum::<f64>() + 0.0
    };
    Ok(GradientNorms {
        norm: sum(false).sqrt(),
        statistics: sum(true).sqrt(),
    })
}

/// Updates every owned parameter. `step` is the number of the step, counted from 0; `factor` scales the
/// gradients first (clipping), except those of statistics.
///
/// # Errors
/// If a stage fails.
pub fn apply_update<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    optimizer: &Optimizer,
    lr: f64,
    step: u64,
    factor: f32,
) -> Result<(), PipelineError> {
    let optimizer = optimizer.clone();
    let settings = UpdateSettings {
        lr,
        step,
        grad_scale: factor,
    };
    pipeline.during("the update").each(move |_, stage| {
        let _busy = stage.device().clone().cpu_slot();
        let mut updates = AdamWBatch::default();
        stage.try_owned(|param, _, is_own| {
            if param.tied || !is_own {
                return Ok(());
            }
            if !param.frozen && param.kind != Kind::Statistic && !optimizer.has_state(param) {
                return Err(crate::Error::Assembly(format!(
                    "{}: its state is not that of the optimizer: assemble the pipeline with the same (`optimizer`)",
                    param.name
                )));
            }
            Ok(optimizer.update_with(&mut updates, param, settings)?)
        })?;
        Ok::<_, crate::Error>(updates.run()?)
    })?;
    if pipeline.replicas() == 1 {
        return Ok(());
    }
    let share = pipeline.during("the sharing of updated parameters");
    share.each(|_, stage| stage.share_values())
}

/// Copies the new value of every tied parameter from its owner to the other places.
///
/// # Errors
/// If a stage fails.
pub fn share_ties<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<(), PipelineError> {
    let task = "the sharing of tied parameters";
    let codec = WireCodec::of(pipeline);
    let tied = pipeline.during(task).gather_across(&codec, |_, stage| {
        let mut names = Vec::new();
        stage.params(|param| {
            if param.tied {
                names.push(param.name.clone());
            }
        });
        Ok::<_, crate::Error>(names)
    })?;
    let tied: Vec<String> = tied.into_iter().flatten().collect();
    if tied.is_empty() {
        return Ok(());
    }
    let values = pipeline
        .during(task)
        .gather_across(&codec, move |_, stage| {
            let mut values: Vec<(String, Tensor)> = Vec::new();
            stage.try_params(|param| {
                if !param.tied && tied.contains(&param.name) {
                    values.push((param.name.clone(), param.value()?.clone()));
                }
                Ok(())
            })?;
            Ok::<_, crate::Error>(values)
        })?;
    let values: HashMap<String, Tensor> = values.into_iter().flatten().collect();
    pipeline.during(task).each(move |_, stage| {
        stage.try_params(|param| {
            if let (true, Some(value)) = (param.tied, values.get(&param.name)) {
                param.set_value(value)?;
            }
            Ok(())
        })
    })
}

/// Applies what layers with state of their own recorded of a training step
/// ([`Layer::commit_mini_batch`](gpipe_layers::Layer::commit_mini_batch)). The last call of a step,
/// when everything that may fail has succeeded; without it the next step discards what was recorded.
///
/// # Errors
/// If a stage fails.
pub fn commit_mini_batch<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<(), PipelineError> {
    pipeline
        .during("the commit")
        .each(|_, stage| stage.commit())
}
