//! What is known of a model from its `config.json`.

use gpipe_layers::models::ModelConfig;
use serde_json::{Map, Value};

/// What is known of a model from its `config.json`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Family and sizes.
    pub model: ModelConfig,
    /// Whether all dropouts of the file are the one that `model` has; otherwise that is 0.
    pub one_dropout: bool,
    /// Those of the keys `bos_token_id`, `eos_token_id` and `pad_token_id` that the file has and that
    /// are not `null`: a token or a list of tokens each. Of a network for images `id2label`, the names of its classes by
    /// number ([`class_names`](crate::class_names)).
    pub ids: Map<String, Value>,
}
