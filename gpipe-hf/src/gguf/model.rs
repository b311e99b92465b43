//! The model that the metadata of a GGUF file describe, and its tensors by their names in `transformers`.

use std::collections::HashMap;

use gpipe_layers::models::{LlamaConfig, ModelConfig};
use serde_json::Map;

use super::header::{Entry, Header, Value, clip};
use crate::config_json::{LARGEST_SIZE, MOST_LAYERS, epsilon, size};
use crate::description::Description;

/// The architectures that are computed here.
const LLAMA: &str = "llama";
const QWEN2: &str = "qwen2";
const QWEN3: &str = "qwen3";

impl Header {
    /// A value of the metadata, if the key is there: one of another type must not pass for a key that is missing.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        what: &str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let value = self.metadata.get(key);
        let typed = |value| of(value).ok_or_else(|| format!("{key} is no {what}"));
        value.map(typed).transpose()
    }

    /// A text of the metadata.
    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        self.typed(key, "text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A whole number of the metadata that is not negative.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, String> {
        self.typed(key, "whole number from 0 up", |value| match *value {
            Value::Whole(number) => u64::try_from(number).ok(),
            _ => None,
        })
    }

    pub fn real(&self, key: &str) -> Result<Option<f64>, String> {
        self.typed(key, "number", |value| match *value {
            Value::Real(number) => Some(number),
            Value::Whole(number) => Some(number as f64),
            _ => None,
        })
    }

    pub fn tensor(&self, name: &str) -> Option<&Entry> {
        self.tensors.iter().find(|entry| entry.name == name)
    }

    pub fn architecture(&self) -> Result<&str, String> {
        match self.text("general.architecture")? {
            Some(known @ (LLAMA | QWEN2 | QWEN3)) => Ok(known),
            Some(other) => Err(format!(
                "general.architecture is `{}`: only {LLAMA}, {QWEN2} and {QWEN3} can be read",
                clip(other)
            )),
            None => Err("has no `general.architecture`".into()),
        }
    }

    /// An error for a key that changes what the model computes in a way that is not built.
    fn check_function(&self, architecture: &str) -> Result<(), String> {
        let key = format!("{architecture}.attention.causal");
        let causal = self.typed(&key, "truth value", |value| match *value {
            Value::Truth(truth) => Some(truth),
            _ => None,
        })?;
        if causal == Some(false) {
            return Err(format!(
                "{key} is false: only models that see earlier positions alone can be trained"
            ));
        }
        // 0 is not set; a scale of 1 changes nothing.
        for (name, is_scale) in [
            ("attention.clamp_kqv", false),
            ("attention.max_alibi_bias", false),
            ("attn_logit_softcapping", false),
            ("embedding_scale", true),
            ("final_logit_softcapping", false),
            ("logit_scale", true),
            ("residual_scale", true),
        ] {
            let key = format!("{architecture}.{name}");
            let neutral = |value: &f64| *value == 0.0 || is_scale && *value == 1.0;
            if let Some(value) = self.real(&key)?.filter(|value| !neutral(value)) {
                let only = if is_scale { 1 } else { 0 };
                return Err(format!("{key} is {value}: only {only} can be trained"));
            }
        }
        Ok(())
    }

    /// The model that can be trained, or what is not so in it, with the values of
    /// [`frequency_factors`](Self::frequency_factors).
    pub fn describe(&self, factors: Option<&[f32]>) -> Result<Description, String> {
        let architecture = self.architecture()?;
        let key = |key: &str| format!("{architecture}.{key}");
        let sized = |name: &str, default: Option<u64>, most: u64| {
            let key = key(name);
            size(&key, self.whole(&key)?.or(default), most)
        };
        self.check_function(architecture)?;
        let experts = self.whole(&key("expert_count"))?;
        if experts.is_some_and(|experts| experts > 0) {
            return Err("is a mixture of experts, which cannot be trained".into());
        }
        let width = sized("embedding_length", None, LARGEST_SIZE)?;
        let heads = sized("attention.head_count", None, LARGEST_SIZE)?;
        let kv_heads = sized("attention.head_count_kv", Some(heads as u64), LARGEST_SIZE)?;
        let head_size = self.head_size()?;
        let table = self.tensor("token_embd.weight").map(|entry| &entry.shape);
        let rows = table
            .and_then(|shape| shape.first())
            .map(|&rows| rows as u64);
        let scale_key = key("attention.scale");
        let scale = self.real(&scale_key)?.filter(|&scale| scale != 0.0);
        let usual = (head_size as f64).powf(-0.5);
        let is_usual = |scale: f64| (scale / usual - 1.0).abs() < 1e-5;
        if let Some(scale) = scale.filter(|&scale| !is_usual(scale)) {
            return Err(format!(
                "{scale_key} is {scale}: only one over the root of the size of a head can be trained, {usual:.6}"
            ));
        }
        let (theta, rope_scaling) = self.rope(factors)?;
        let eps_key = key("attention.layer_norm_rms_epsilon");
        let eps = self.real(&eps_key)?;
        let has = |part: &str| self.tensor(&format!("blk.0.{part}.bias")).is_some();
        let mut ids = Map::new();
        for (stored, name) in [
            ("bos", "bos_token_id"),
            ("eos", "eos_token_id"),
            ("padding", "pad_token_id"),
        ] {
            if let Some(id) = self.whole(&format!("tokenizer.ggml.{stored}_token_id"))? {
                ids.insert(name.to_owned(), id.into());
            }
        }
        Ok(Description {
            model: ModelConfig::Llama(LlamaConfig {
                vocab: sized("vocab_size", rows, LARGEST_SIZE)?,
                context: sized("context_length", None, LARGEST_SIZE)?,
                width,
                inner: sized("feed_forward_length", None, LARGEST_SIZE)?,
                blocks: sized("block_count", None, MOST_LAYERS)?,
                heads,
                kv_heads,
                head_size,
                tied: self.tensor("output.weight").is_none(),
                theta,
                rope_scaling,
                rms_norm_eps: epsilon(&eps_key, eps.ok_or(format!("has no `{eps_key}`"))?)?,
                qkv_bias: has("attn_q"),
                qk_norm: architecture == QWEN3,
                output_bias: has("attn_output"),
                mlp_bias: has("ffn_gate"),
                window: None,
                full_every: None,
                window_theta: 1e4,
                gemma: false,
                dropout: 0.0,
            }),
            one_dropout: true,
            ids,
        })
    }

    /// The tensors by global name, with the number of heads whose rows are permuted: the file has the rows of
    /// queries and keys as they are needed where neighbours are pairs, not halves of a head.
    pub fn located(&self) -> Result<HashMap<String, (Entry, Option<usize>)>, String> {
        let architecture = self.architecture()?;
        let heads = |key: &str| self.whole(&format!("{architecture}.attention.{key}"));
        let queries = heads("head_count")?;
        let keys = heads("head_count_kv")?.or(queries);
        let mut located = HashMap::new();
        let parameters = self.tensors.iter();
        for entry in parameters.filter(|entry| !Self::is_of_positions(entry)) {
            let Some(name) = global_name(&entry.name) else {
                return Err(format!(
                    "`{}` is no parameter of a model of this architecture",
                    clip(&entry.name)
                ));
            };
            let permuted = match architecture == LLAMA {
                true if entry.name.contains(".attn_q.") => queries,
                true if entry.name.contains(".attn_k.") => keys,
                _ => None,
            };
            let found = (entry.clone(), permuted.map(|heads| heads as usize));
            located.insert(name, found);
        }
        Ok(located)
    }
}

/// The name of a tensor in `transformers`: no two names have the same.
fn global_name(stored: &str) -> Option<String> {
    let fixed = match stored {
        "token_embd.weight" => Some("model.embed_tokens.weight"),
        "output_norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    if let Some(name) = fixed {
        return Some(name.to_owned());
    }
    let (block, rest) = stored.strip_prefix("blk.")?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    // Written in one way, so that a name is as short as its number and no other one means the same block.
    let number: u32 = block.parse().ok()?;
    if number.to_string() != block {
        return None;
    }
    let part = match part {
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    matches!(kind, "weight" | "bias").then(|| format!("model.layers.{block}.{part}.{kind}"))
}

/// The rows of each head with the two halves one after the other: stored row 2i + s of a head is row
/// i + s·H/2.
pub fn unpermuted(values: &[f32], rows: usize, heads: usize) -> Vec<f32> {
    let (width, size) = (values.len() / rows, rows / heads);
    let mut sorted = Vec::with_capacity(values.len());
    for row in 0..rows {
        let (head, row) = (row / size, row % size);
        let stored = head * size + row % (size / 2) * 2 + row / (size / 2);
        sorted.extend_from_slice(&values[stored * width..(stored + 1) * width]);
    }
    sorted
}
