//! GPT-2, as the class `GPT2Config` of `transformers` has it.

use gpipe_layers::Gelu;
use gpipe_layers::models::{GptConfig, ModelConfig};
use serde_json::{Map, Value, json};

use super::keys::{Keys, LARGEST_SIZE, MOST_LAYERS, clip, dropout, epsilon, ids, shortest, size};
use crate::description::Description;

/// Its `model_type`.
pub const TYPE: &str = "gpt2";

/// A GPT-2 that can be trained, or what is not so in it.
pub fn read(keys: Keys) -> Result<Description, String> {
    check_variants(&keys)?;
    let width = size("n_embd", keys.n_embd, LARGEST_SIZE)?;
    if let Some(inner) = keys.n_inner
        && inner != 4 * width as u64
    {
        return Err(format!(
            "n_inner is {inner}: only 4 times n_embd = {} can be trained",
            4 * width as u64
        ));
    }
    let heads = size("n_head", keys.n_head, LARGEST_SIZE)?;
    if !width.is_multiple_of(heads) {
        return Err(format!("n_head = {heads} does not divide n_embd = {width}"));
    }
    let gelu = gelu(keys.activation_function.as_deref())?;
    let dropouts = [
        ("embd_pdrop", keys.embd_pdrop),
        ("attn_pdrop", keys.attn_pdrop),
        ("resid_pdrop", keys.resid_pdrop),
    ];
    // A key that is missing has the value that the class sets.
    let dropouts = dropouts.map(|(key, share)| (key, share.unwrap_or(0.1)));
    let [(key, share), others @ ..] = dropouts;
    let first = dropout(key, share)?;
    for (key, share) in others {
        dropout(key, share)?;
    }
    let one_dropout = others.iter().all(|&(_, other)| other == share);
    let layer_norm_eps = epsilon(
        "layer_norm_epsilon",
        keys.layer_norm_epsilon.unwrap_or(1e-5),
    )?;
    let ids = ids([
        ("bos_token_id", keys.bos_token_id),
        ("eos_token_id", keys.eos_token_id),
        ("pad_token_id", keys.pad_token_id),
    ])?;
    Ok(Description {
        model: ModelConfig::Gpt(GptConfig {
            vocab: size("vocab_size", keys.vocab_size, LARGEST_SIZE)?,
            context: size("n_positions", keys.n_positions.or(keys.n_ctx), LARGEST_SIZE)?,
            width,
            blocks: size("n_layer", keys.n_layer, MOST_LAYERS)?,
            heads,
            tied: keys.tie_word_embeddings.unwrap_or(true),
            gelu,
            layer_norm_eps,
            dropout: if one_dropout { first } else { 0.0 },
        }),
        one_dropout,
        ids,
    })
}

/// Refuses variants of the architecture that are not computed here.
fn check_variants(keys: &Keys) -> Result<(), String> {
    let variants = [
        ("scale_attn_weights", keys.scale_attn_weights, true),
        (
            "scale_attn_by_inverse_layer_idx",
            keys.scale_attn_by_inverse_layer_idx,
            false,
        ),
        (
            "reorder_and_upcast_attn",
            keys.reorder_and_upcast_attn,
            false,
        ),
        ("add_cross_attention", keys.add_cross_attention, false),
        ("is_encoder_decoder", keys.is_encoder_decoder, false),
    ];
    for (key, value, only) in variants {
        if value.is_some_and(|value| value != only) {
            return Err(format!("{key} is {}: only {only} can be trained", !only));
        }
    }
    match keys.quantization_config {
        Some(_) => Err(
            "quantization_config: quantized weights cannot be trained: save them in float32".into(),
        ),
        None => Ok(()),
    }
}

fn gelu(name: Option<&str>) -> Result<Gelu, String> {
    match name {
        None | Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Gelu::Tanh),
        Some("gelu") => Ok(Gelu::Erf),
        Some(other) => Err(format!(
            "activation_function is `{}`: only gelu_new, gelu_pytorch_tanh and gelu can be trained",
            clip(other)
        )),
    }
}

/// The object for a GPT-2, with these of the keys of [`Description::ids`].
pub fn write(config: &GptConfig, ids: &Map<String, Value>) -> Value {
    let activation = match config.gelu {
        Gelu::Tanh => "gelu_new",
        Gelu::Erf => "gelu",
    };
    let dropout = shortest(config.dropout);
    let mut object = json!({
        "activation_function": activation,
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": dropout,
        "bos_token_id": null,
        "embd_pdrop": dropout,
        "eos_token_id": null,
        "layer_norm_epsilon": shortest(config.layer_norm_eps),
        "model_type": TYPE,
        "n_ctx": config.context,
        "n_embd": config.width,
        "n_head": config.heads,
        "n_inner": null,
        "n_layer": config.blocks,
        "n_positions": config.context,
        "resid_pdrop": dropout,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
        "vocab_size": config.vocab,
    });
    for (key, value) in ids {
        object[key] = value.clone();
    }
    object
}
