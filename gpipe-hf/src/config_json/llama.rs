//! Llama, Qwen2, Qwen3, Mistral and Gemma 3, as the classes `LlamaConfig`, `Qwen2Config`, `Qwen3Config`, `MistralConfig` and
//! `Gemma3TextConfig` of `transformers` have them.

use gpipe_layers::models::{LlamaConfig, ModelConfig};
use serde_json::{Map, Value, json};

use super::keys::{
    FULL, Keys, LARGEST_SIZE, MOST_LAYERS, SLIDING, clip, dropout, epsilon, ids, shortest, size,
};
use super::{gemma, rope};
use crate::description::Description;

/// The `model_type`s of the family.
pub const LLAMA: &str = "llama";
pub const QWEN2: &str = "qwen2";
pub const QWEN3: &str = "qwen3";
pub const MISTRAL: &str = "mistral";

/// A model of the family that can be trained, or what is not so in it.
pub fn read(keys: Keys, kind: &str) -> Result<Description, String> {
    // The class of Gemma does not look at it.
    let is_taken = |act: &&str| kind == gemma::TYPE || *act == "silu";
    if let Some(other) = keys.hidden_act.as_deref().filter(|act| !is_taken(act)) {
        return Err(format!(
            "hidden_act is `{}`: only silu can be trained",
            clip(other)
        ));
    }
    if keys.quantization_config.is_some() {
        return Err(
            "quantization_config: quantized weights cannot be trained: save them in float32".into(),
        );
    }
    let is_gemma = kind == gemma::TYPE;
    let types = layer_types(&keys, kind)?;
    let (window, full_every) = match is_gemma {
        true => gemma::windows(&keys)?,
        false => (window(&keys, kind, types)?, None),
    };
    let width = size("hidden_size", keys.hidden_size, LARGEST_SIZE)?;
    let heads = size(
        "num_attention_heads",
        keys.num_attention_heads,
        LARGEST_SIZE,
    )?;
    let kv_heads = keys.num_key_value_heads.unwrap_or(match kind {
        // What the classes set where the key is missing; `null` is as many as there are heads.
        MISTRAL => Some(8),
        gemma::TYPE => Some(4),
        QWEN2 | QWEN3 => Some(32),
        _ => None,
    });
    let kv_heads = kv_heads.unwrap_or(heads as u64);
    let kv_heads = size("num_key_value_heads", Some(kv_heads), LARGEST_SIZE)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(format!(
            "num_key_value_heads = {kv_heads} does not divide num_attention_heads = {heads}"
        ));
    }
    let usual = match kind {
        QWEN3 => 128,
        gemma::TYPE => 256,
        _ => (width / heads) as u64,
    };
    let head_size = size("head_dim", keys.head_dim.or(Some(usual)), LARGEST_SIZE)?;
    if !head_size.is_multiple_of(2) {
        return Err(format!(
            "head_dim is {head_size}: rotary positions need an even number"
        ));
    }
    // What the classes set where the key is missing.
    let (context, eps) = match kind {
        MISTRAL => (4096 * 32, 1e-6),
        QWEN2 | QWEN3 => (32_768, 1e-6),
        gemma::TYPE => (131_072, 1e-6),
        _ => (2048, 1e-6),
    };
    let context = size(
        "max_position_embeddings",
        keys.max_position_embeddings.or(Some(context)),
        LARGEST_SIZE,
    )?;
    let (theta, rope_scaling, window_theta) = match is_gemma {
        true => {
            gemma::check(&keys, head_size)?;
            gemma::rope(&keys, context)?
        }
        false => {
            let (theta, scaling) = rope::read(&keys, context)?;
            (theta, scaling, LlamaConfig::default().window_theta)
        }
    };
    let bias = keys.attention_bias.unwrap_or(false) && [LLAMA, QWEN3, gemma::TYPE].contains(&kind);
    Ok(Description {
        model: ModelConfig::Llama(LlamaConfig {
            vocab: size("vocab_size", keys.vocab_size, LARGEST_SIZE)?,
            context,
            width,
            inner: size("intermediate_size", keys.intermediate_size, LARGEST_SIZE)?,
            blocks: size("num_hidden_layers", keys.num_hidden_layers, MOST_LAYERS)?,
            heads,
            kv_heads,
            head_size,
            tied: keys.tie_word_embeddings.unwrap_or(is_gemma),
            theta,
            rope_scaling,
            rms_norm_eps: epsilon("rms_norm_eps", keys.rms_norm_eps.unwrap_or(eps))?,
            qkv_bias: kind == QWEN2 || bias,
            qk_norm: kind == QWEN3,
            output_bias: bias,
            mlp_bias: kind == LLAMA && keys.mlp_bias.unwrap_or(false),
            window,
            full_every,
            window_theta,
            gemma: is_gemma,
            dropout: dropout(
                "attention_dropout",
                keys.attention_dropout.unwrap_or_default(),
            )?,
        }),
        one_dropout: true,
        ids: ids([
            ("bos_token_id", keys.bos_token_id),
            ("eos_token_id", keys.eos_token_id),
            ("pad_token_id", keys.pad_token_id),
        ])?,
    })
}

/// The kinds of the blocks, if there is a list of them.
fn layer_types<'a>(keys: &'a Keys, kind: &str) -> Result<Option<&'a [String]>, String> {
    let types = keys.layer_types.as_deref().filter(|_| kind != LLAMA);
    let other = |of: &&String| !matches!(of.as_str(), SLIDING | FULL);
    if let Some(other) = types.and_then(|types| types.iter().find(other)) {
        return Err(format!(
            "layer_types has `{}`: only {FULL} and {SLIDING} can be trained",
            clip(other)
        ));
    }
    let blocks = keys.num_hidden_layers;
    if let (Some(types), Some(blocks)) = (types, blocks)
        && types.len() as u64 != blocks
    {
        return Err(format!(
            "layer_types has {} of num_hidden_layers = {blocks} entries: list every block once",
            types.len()
        ));
    }
    Ok(types)
}

/// The number of positions that a position sees, if not all: one for all blocks.
fn window(keys: &Keys, kind: &str, types: Option<&[String]>) -> Result<Option<usize>, String> {
    let used = match kind {
        MISTRAL => true,
        QWEN2 | QWEN3 => keys.use_sliding_window.unwrap_or(false),
        _ => false,
    };
    // What the classes set where the key is missing.
    let window = keys.sliding_window.unwrap_or(Some(4096));
    let Some(window) = window.filter(|_| used) else {
        return Ok(None);
    };
    // Where both are there, the list decides.
    let of_blocks = |kind: &str| types.into_iter().flatten().any(|of| of == kind);
    let (some, full) = match (types, kind) {
        (Some(_), _) => (of_blocks(SLIDING), of_blocks(FULL)),
        (None, QWEN2 | QWEN3) => {
            let blocks = keys.num_hidden_layers.unwrap_or(0);
            let full = keys.max_window_layers.unwrap_or(28);
            (full < blocks, full > 0)
        }
        _ => (true, false),
    };
    match (some, full) {
        (false, _) => Ok(None),
        (true, false) => size("sliding_window", Some(window), LARGEST_SIZE).map(Some),
        (true, true) => Err(
            "sliding_window is for some of the blocks only: all or none of them can be trained"
                .into(),
        ),
    }
}

/// The object for a model of the family, with these of the keys of [`Description::ids`]; none for one that
/// no class of `transformers` computes.
pub fn write(config: &LlamaConfig, ids: &Map<String, Value>) -> Result<Value, String> {
    if !config.gemma && (config.full_every.is_some() || config.window_theta != 1e4) {
        return Err(
            "no class of transformers has windows in some of the blocks of such a model: leave out full_every and window_theta"
                .into(),
        );
    }
    let biases = [config.qkv_bias, config.output_bias, config.mlp_bias];
    let (kind, class) = match (config.qk_norm, config.window, biases) {
        (false, _, [qkv, output, false]) if config.gemma && qkv == output => {
            (gemma::TYPE, "Gemma3ForCausalLM")
        }
        _ if config.gemma => {
            return Err(
                "no class of transformers is such a Gemma: leave out qk_norm, qkv_bias, output_bias and mlp_bias"
                    .into(),
            );
        }
        (true, _, [qkv, output, false]) if qkv == output => (QWEN3, "Qwen3ForCausalLM"),
        (false, None, [qkv, output, _]) if qkv == output => (LLAMA, "LlamaForCausalLM"),
        (false, _, [true, false, false]) => (QWEN2, "Qwen2ForCausalLM"),
        (false, Some(_), [false, false, false]) => (MISTRAL, "MistralForCausalLM"),
        _ => {
            return Err(
                "no class of transformers has these biases in such a model: leave out qkv_bias, output_bias and mlp_bias"
                    .into(),
            );
        }
    };
    let mut object = json!({
        "architectures": [class],
        "attention_dropout": shortest(config.dropout),
        "bos_token_id": null,
        "eos_token_id": null,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "hidden_size": config.width,
        "initializer_range": 0.02,
        "intermediate_size": config.inner,
        "max_position_embeddings": config.context,
        "model_type": kind,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.blocks,
        "num_key_value_heads": config.kv_heads,
        "rms_norm_eps": shortest(config.rms_norm_eps),
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
        "vocab_size": config.vocab,
    });
    if [LLAMA, QWEN3, gemma::TYPE].contains(&kind) {
        object["attention_bias"] = config.qkv_bias.into();
    }
    match kind {
        LLAMA => object["mlp_bias"] = config.mlp_bias.into(),
        QWEN2 | QWEN3 => {
            object["use_sliding_window"] = config.window.is_some().into();
            object["sliding_window"] = config.window.into();
            object["max_window_layers"] = 0.into();
        }
        gemma::TYPE => gemma::write(config, &mut object),
        _ => object["sliding_window"] = config.window.into(),
    }
    let rope = rope::write(config.theta, config.rope_scaling);
    for (key, value) in rope.iter().chain(ids) {
        object[key] = value.clone();
    }
    Ok(object)
}
