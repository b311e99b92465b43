//! From gradients to the next values, in four verbs that a training loop calls in this order:
//! [`merge_ties`], [`gradient_norm`], [`update`], [`share_ties`].
//!
//! Each is the same at every number of stages, to the bit: what crosses stages is gathered in
//! layer order and combined there.

use std::collections::HashMap;

use gpipe_layers::Optimizer;
use gpipe_sched::{Pipeline, PipelineError, Turn};
use gpipe_tensor::ops::{self, AdamWs};
use gpipe_tensor::{Tensor, Tensors};

use crate::{LayerStage, ModelPipeline};

/// Adds the gradients of tied places to those of their owners, in layer order.
///
/// # Errors
/// If a stage fails.
pub fn merge_ties(pipeline: &mut ModelPipeline) -> Result<(), PipelineError> {
    let places = pipeline.gather(|_, stage| {
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
    pipeline.each(move |_, stage| {
        let device = stage.device().clone();
        stage.try_params(|param| {
            for (name, grad) in &places {
                if !param.tied && !param.frozen && *name == param.name {
                    let grad = grad.clone().receive(&device)?;
                    ops::add_assign(param.grad_mut()?, &grad)?;
                }
            }
            Ok(())
        })
    })
}

/// The norm of all gradients together. Each parameter's sum of squares is taken by itself and the
/// sums are added in layer order, so the cut does not show.
///
/// # Errors
/// If a stage fails.
pub fn gradient_norm(pipeline: &mut ModelPipeline) -> Result<f64, PipelineError> {
    let squares = pipeline.gather(|_, stage| {
        let _busy = stage.device().clone().busy();
        let mut grads: Vec<Tensor> = Vec::new();
        stage.try_params(|param| {
            if !param.tied && !param.frozen {
                grads.push(param.grad()?.clone());
            }
            Ok(())
        })?;
        let grads: Vec<&Tensor> = grads.iter().collect();
        Ok::<_, crate::Error>(ops::sums_of_squares(&grads)?)
    })?;
    Ok(squares.into_iter().flatten().sum::<f64>().sqrt())
}

/// One optimizer step on every parameter that is owned. `step` counts from 1; `factor` scales the
/// gradients first (clipping).
///
/// # Errors
/// If a stage fails.
pub fn update(
    pipeline: &mut ModelPipeline,
    optimizer: &Optimizer,
    lr: f64,
    step: u64,
    factor: f32,
) -> Result<(), PipelineError> {
    let optimizer = optimizer.clone();
    pipeline.each(move |_, stage| {
        let _busy = stage.device().clone().busy();
        let mut updates = AdamWs::default();
        stage.try_params(|param| {
            if !param.tied {
                optimizer.update_with(&mut updates, param, lr, step, factor)?;
            }
            Ok(())
        })?;
        Ok::<_, crate::Error>(updates.run()?)
    })
}

/// Hands the new value of every tied parameter from its owner to the other places.
///
/// # Errors
/// If a stage fails.
pub fn share_ties<T: Turn<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> Result<(), PipelineError> {
    let tied = pipeline.gather(|_, stage| {
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
    let values = pipeline.gather(move |_, stage| {
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
    pipeline.each(move |_, stage| {
        stage.try_params(|param| {
            if let (true, Some(value)) = (param.tied, values.get(&param.name)) {
                param.set_value(value)?;
            }
            Ok(())
        })
    })
}
