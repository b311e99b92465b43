//! A perceptron.

use gpipe_layers::layers::Function;
use gpipe_layers::models::{MlpConfig, ModelConfig};
use serde_json::{Map, Value, json};

use super::keys::{Keys, LARGEST_SIZE, MOST_LAYERS, dropout, shortest, size};
use crate::description::Description;
use crate::error::{Error, Result};

/// Its `model_type`.
pub const TYPE: &str = "mlp";

/// The `hidden_act`, which stands between its layers.
const ACTIVATION: &str = "relu";

/// A perceptron as [`write`] describes one.
pub fn read(keys: Keys) -> std::result::Result<Description, String> {
    let inputs = size("input_size", keys.input_size, LARGEST_SIZE)?;
    let outputs = size("num_labels", keys.num_labels, LARGEST_SIZE)?;
    if keys.hidden_act.as_deref() != Some(ACTIVATION) {
        return Err(format!("hidden_act is not {ACTIVATION}"));
    }
    let hidden = keys.hidden_sizes.unwrap_or_default();
    if hidden.is_empty() || hidden.len() as u64 > MOST_LAYERS {
        return Err(format!("hidden_sizes must list 1 to {MOST_LAYERS} widths"));
    }
    let hidden = hidden
        .into_iter()
        .map(|width| size("hidden_sizes", Some(width), LARGEST_SIZE))
        .collect::<std::result::Result<_, _>>()?;
    Ok(Description {
        model: ModelConfig::Mlp(MlpConfig {
            inputs,
            hidden,
            outputs,
            activation: Function::Relu,
            dropout: dropout(
                "hidden_dropout_prob",
                keys.hidden_dropout_prob.unwrap_or(0.0),
            )?,
        }),
        one_dropout: true,
        ids: Map::new(),
    })
}

/// The object for a perceptron.
pub fn write(config: &MlpConfig) -> Result<Value> {
    if config.activation != Function::Relu {
        let fault = format!(
            "its activation is {:?}, but hidden_act can only be {ACTIVATION}",
            config.activation
        );
        return Err(Error::NotWritable(fault));
    }
    Ok(json!({
        "model_type": TYPE,
        "hidden_act": ACTIVATION,
        "hidden_dropout_prob": shortest(config.dropout),
        "hidden_sizes": config.hidden,
        "input_size": config.inputs,
        "num_labels": config.outputs,
        "torch_dtype": "float32",
    }))
}
