//! The keys of `config.json`, and the values that several families have.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The most blocks or hidden layers: a model is a list of layers, which has to be made before it can be
/// refused.
pub const MOST_LAYERS: u64 = 10_000;

/// The largest size: products of two fit 64 bits.
pub const LARGEST_SIZE: u64 = u32::MAX as u64;

/// The kinds of blocks that `layer_types` lists.
pub const SLIDING: &str = "sliding_attention";
pub const FULL: &str = "full_attention";

/// The keys that decide what a model is. All others are left alone: files have many.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub struct Keys {
    pub model_type: Option<String>,
    // Of a GPT-2.
    pub n_embd: Option<u64>,
    pub n_layer: Option<u64>,
    pub n_head: Option<u64>,
    pub n_positions: Option<u64>,
    pub n_ctx: Option<u64>,
    pub vocab_size: Option<u64>,
    pub n_inner: Option<u64>,
    pub activation_function: Option<String>,
    pub layer_norm_epsilon: Option<f64>,
    pub embd_pdrop: Option<f64>,
    pub attn_pdrop: Option<f64>,
    pub resid_pdrop: Option<f64>,
    pub tie_word_embeddings: Option<bool>,
    pub scale_attn_weights: Option<bool>,
    pub scale_attn_by_inverse_layer_idx: Option<bool>,
    pub reorder_and_upcast_attn: Option<bool>,
    pub add_cross_attention: Option<bool>,
    pub is_encoder_decoder: Option<bool>,
    pub quantization_config: Option<Value>,
    pub bos_token_id: Option<Value>,
    pub eos_token_id: Option<Value>,
    pub pad_token_id: Option<Value>,
    // Of a Llama, a Qwen2, a Qwen3, a Mistral and a Gemma 3.
    pub hidden_size: Option<u64>,
    pub intermediate_size: Option<u64>,
    pub num_hidden_layers: Option<u64>,
    pub num_attention_heads: Option<u64>,
    /// `None` where the key is missing, unlike `null`.
    #[serde(default, deserialize_with = "given")]
    pub num_key_value_heads: Option<Option<u64>>,
    pub head_dim: Option<u64>,
    pub max_position_embeddings: Option<u64>,
    pub rms_norm_eps: Option<f64>,
    pub rope_theta: Option<f64>,
    pub rope_scaling: Option<Value>,
    pub rope_parameters: Option<Value>,
    pub original_max_position_embeddings: Option<u64>,
    pub rope_local_base_freq: Option<f64>,
    pub hidden_activation: Option<String>,
    pub query_pre_attn_scalar: Option<f64>,
    pub attn_logit_softcapping: Option<f64>,
    pub final_logit_softcapping: Option<f64>,
    pub use_bidirectional_attention: Option<bool>,
    pub sliding_window_pattern: Option<u64>,
    pub attention_bias: Option<bool>,
    pub mlp_bias: Option<bool>,
    pub attention_dropout: Option<f64>,
    /// `None` where the key is missing, unlike `null`.
    #[serde(default, deserialize_with = "given")]
    pub sliding_window: Option<Option<u64>>,
    pub use_sliding_window: Option<bool>,
    pub max_window_layers: Option<u64>,
    pub layer_types: Option<Vec<String>>,
    // Of a perceptron.
    pub hidden_sizes: Option<Vec<u64>>,
    pub hidden_act: Option<String>,
    pub hidden_dropout_prob: Option<f64>,
    pub input_size: Option<u64>,
    pub num_labels: Option<u64>,
    pub id2label: Option<Value>,
    // Of an encoder-decoder.
    pub encoder_layers: Option<u64>,
    pub transparent: Option<bool>,
    pub decoder_layers: Option<u64>,
    // Of a network for images.
    pub network: Option<String>,
    pub num_channels: Option<u64>,
    pub dropout: Option<f64>,
}

/// A key that is there.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A size from 1 to `most`, which must be there.
pub fn size(key: &str, value: Option<u64>, most: u64) -> Result<usize, String> {
    match value {
        // It fits: `most` does not exceed 32 bits.
        Some(value) if (1..=most).contains(&value) => Ok(value as usize),
        Some(value) => Err(format!("{key} is {value}: it must be from 1 to {most}")),
        None => Err(format!("has no `{key}`")),
    }
}

/// A probability of dropping, in the precision in which it is used.
pub fn dropout(key: &str, share: f64) -> Result<f32, String> {
    let rounded = share as f32;
    match (0.0..1.0).contains(&share) && rounded < 1.0 {
        true => Ok(rounded),
        false => Err(format!("{key} is {share}: it must be from 0 to below 1")),
    }
}

/// The most tokens that a key of [`ids`] may list.
const MOST_IDS: usize = 64;

/// Those of the keys that are there and not `null`: a token or a list of tokens each.
pub fn ids(keys: [(&str, Option<Value>); 3]) -> Result<Map<String, Value>, String> {
    let mut known = Map::new();
    for (key, value) in keys {
        let Some(value) = value else { continue };
        let tokens = value
            .as_array()
            .map_or(std::slice::from_ref(&value), Vec::as_slice);
        if tokens.len() > MOST_IDS || !tokens.iter().all(Value::is_i64) {
            return Err(format!(
                "{key} is neither a token's number nor a list of some, nor null"
            ));
        }
        known.insert(key.to_owned(), value);
    }
    Ok(known)
}

/// The number that is added in every normalization.
pub fn epsilon(key: &str, value: f64) -> Result<f32, String> {
    let rounded = value as f32;
    match rounded.is_finite() && value >= 0.0 {
        true => Ok(rounded),
        false => Err(format!("{key} is {value}: it must be from 0 up")),
    }
}

/// The shortest number in double precision that reads back as this one: 1e-5, not 9.9999997e-6.
pub fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(number.into())
}

/// The beginning of a text that a file decides the length of.
pub fn clip(text: &str) -> &str {
    const MOST: usize = 200;
    let end = (0..=MOST.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
