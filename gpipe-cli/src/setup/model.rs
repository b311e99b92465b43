//! What is trained: layers, what enters the first, and how their parameters follow gradients.

use gpipe_layers::layers::Function;
use gpipe_layers::models::{self, GptConfig, MlpConfig};
use gpipe_layers::{Flow, Layer, Optimizer, compute_in};
use gpipe_tensor::DType;

use crate::config::Config;
use crate::data::{CLASSES, PIXELS};
use crate::fail::{Fail, Result};
use crate::precision;

/// The layers of the configured model.
pub fn layers(config: &Config) -> Result<Vec<Box<dyn Layer>>> {
    let stored = precision::stored(config)?;
    let mut layers = match &config.model.hidden {
        None => models::gpt(&gpt(config)),
        Some(hidden) => models::mlp(&MlpConfig {
            inputs: PIXELS,
            hidden: hidden.get().to_vec(),
            outputs: CLASSES,
            activation: Function::Relu,
            dropout: config.model.dropout.get() as f32,
        }),
    }
    .map_err(Fail::usage)?;
    for layer in &mut layers {
        compute_in(layer.as_mut(), stored);
    }
    Ok(layers)
}

/// What enters the first layer, for a number of samples.
pub fn input(config: &Config) -> impl Fn(usize) -> Vec<Flow> + use<> {
    let (tokens, classifies) = (config.data.seq_len.get(), config.model.classifies());
    move |samples| match classifies {
        true => vec![Flow::f32([samples, PIXELS])],
        false => vec![Flow {
            shape: [samples, tokens].into(),
            dtype: DType::U32,
        }],
    }
}

/// The GPT that is configured.
pub fn gpt(config: &Config) -> GptConfig {
    let model = &config.model;
    GptConfig {
        vocab: model.vocab.get(),
        context: model.context.get(),
        width: model.width.get(),
        blocks: model.blocks.get(),
        heads: model.heads.get(),
        tied: model.tied,
        gelu: model.gelu.0,
        layer_norm_eps: model.layer_norm_eps.get() as f32,
        dropout: model.dropout.get() as f32,
    }
}

/// How parameters follow gradients.
pub fn optimizer(config: &Config) -> Optimizer {
    let optimizer = &config.optimizer;
    let (beta1, beta2, eps) = (
        optimizer.beta1.get(),
        optimizer.beta2.get(),
        optimizer.eps.get(),
    );
    Optimizer::adamw(
        beta1,
        beta2,
        eps,
        optimizer.weight_decay.get(),
        *optimizer.decay,
    )
}

/// Parameters, a tied one counted once.
pub fn parameters(layers: &mut [Box<dyn Layer>]) -> u64 {
    let mut parameters = 0_u64;
    for layer in layers {
        layer.params(&mut |param| {
            if !param.tied {
                parameters = parameters.saturating_add(param.elements());
            }
        });
    }
    parameters
}
