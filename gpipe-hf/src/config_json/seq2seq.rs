//! An encoder-decoder. Its weights have the names of PyTorch's `Transformer`, which no class of `transformers` has,
//! so the keys are our own.

use gpipe_layers::models::{ModelConfig, Seq2SeqConfig};
use serde_json::{Map, Value, json};

use super::keys::{Keys, LARGEST_SIZE, MOST_LAYERS, dropout, epsilon, shortest, size};
use crate::description::Description;

/// Its `model_type`.
pub const TYPE: &str = "gpipe_seq2seq";

/// The key of what is added to variances.
const EPSILON: &str = "layer_norm_epsilon";

/// An encoder-decoder as [`write`] describes one.
pub fn read(keys: Keys) -> Result<Description, String> {
    Ok(Description {
        model: ModelConfig::Seq2Seq(Seq2SeqConfig {
            vocab: size("vocab_size", keys.vocab_size, LARGEST_SIZE)?,
            width: size("hidden_size", keys.hidden_size, LARGEST_SIZE)?,
            inner: size("intermediate_size", keys.intermediate_size, LARGEST_SIZE)?,
            encoder_blocks: size("encoder_layers", keys.encoder_layers, MOST_LAYERS)?,
            decoder_blocks: size("decoder_layers", keys.decoder_layers, MOST_LAYERS)?,
            heads: size(
                "num_attention_heads",
                keys.num_attention_heads,
                LARGEST_SIZE,
            )?,
            layer_norm_eps: epsilon(EPSILON, keys.layer_norm_epsilon.unwrap_or(1e-6))?,
            dropout: dropout("dropout", keys.dropout.unwrap_or(0.0))?,
            transparent: keys.transparent.unwrap_or(false),
        }),
        one_dropout: true,
        ids: Map::new(),
    })
}

/// The object for an encoder-decoder.
pub fn write(config: &Seq2SeqConfig) -> Value {
    json!({
        "model_type": TYPE,
        "decoder_layers": config.decoder_blocks,
        "dropout": shortest(config.dropout),
        "encoder_layers": config.encoder_blocks,
        "hidden_size": config.width,
        "intermediate_size": config.inner,
        (EPSILON): shortest(config.layer_norm_eps),
        "num_attention_heads": config.heads,
        "torch_dtype": "float32",
        "transparent": config.transparent,
        "vocab_size": config.vocab,
    })
}
