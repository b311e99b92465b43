//! A network for images. `transformers` has other names for the weights of such networks, so the keys are
//! our own.

use gpipe_layers::models::{ImageConfig, ModelConfig};
use serde_json::{Map, Value, json};

use super::keys::{Keys, LARGEST_SIZE, clip, dropout, shortest, size};
use crate::description::Description;

/// Its `model_type`.
pub const TYPE: &str = "gpipe_image";

/// A network as [`write`] describes one.
pub fn read(keys: Keys) -> Result<Description, String> {
    let network = keys.network.as_deref().ok_or("has no `network`")?;
    Ok(Description {
        model: ModelConfig::Image(ImageConfig {
            network: clip(network)
                .parse()
                .map_err(|fault| format!("network: {fault}"))?,
            channels: size("num_channels", keys.num_channels, LARGEST_SIZE)?,
            classes: size("num_labels", keys.num_labels, LARGEST_SIZE)?,
            dropout: dropout("dropout", keys.dropout.unwrap_or(0.0))?,
        }),
        one_dropout: true,
        ids: Map::new(),
    })
}

/// The object for a network.
pub fn write(config: &ImageConfig) -> Value {
    json!({
        "model_type": TYPE,
        "dropout": shortest(config.dropout),
        "network": config.network.to_string(),
        "num_channels": config.channels,
        "num_labels": config.classes,
        "torch_dtype": "float32",
    })
}
