//! `config.json` as the class `GPT2Config` of `transformers` has it.

use gpipe_layers::Gelu;
use gpipe_layers::models::GptConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{Config, PERCEPTRON};
use crate::data::{CLASSES, PIXELS};

/// What a model is.
#[derive(Clone, Debug, PartialEq)]
pub enum Architecture {
    /// A GPT-2.
    Gpt(GptConfig),
    /// A perceptron that classifies the images of digits.
    Perceptron {
        /// Widths of its hidden layers.
        hidden: Vec<u64>,
        /// Probability of dropping an activation.
        dropout: f64,
    },
}

/// What is known of a model from its `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// All of it.
    pub model: Architecture,
    /// Whether all three dropouts are the one that `model` has; otherwise that is 0.
    pub one_dropout: bool,
    /// The keys [`IDS`] that it has: `null`, a token or a list of tokens.
    pub ids: Map<String, Value>,
}

/// The most blocks: a model is a list of layers, which has to be made before it can be refused.
const MOST_BLOCKS: u64 = 10_000;

/// Which tokens begin, end and fill up a text.
const IDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// What stands between the layers of a perceptron.
const ACTIVATION: &str = "relu";

/// The most tokens that one of these keys may list.
const MOST_IDS: usize = 64;

/// The keys that mean something to us. All others are left alone: files have many.
#[derive(Deserialize)]
struct Raw {
    model_type: Option<String>,
    n_embd: Option<u64>,
    n_layer: Option<u64>,
    n_head: Option<u64>,
    n_positions: Option<u64>,
    n_ctx: Option<u64>,
    vocab_size: Option<u64>,
    n_inner: Option<u64>,
    activation_function: Option<String>,
    layer_norm_epsilon: Option<f64>,
    embd_pdrop: Option<f64>,
    attn_pdrop: Option<f64>,
    resid_pdrop: Option<f64>,
    tie_word_embeddings: Option<bool>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    reorder_and_upcast_attn: Option<bool>,
    add_cross_attention: Option<bool>,
    is_encoder_decoder: Option<bool>,
    quantization_config: Option<Value>,
    bos_token_id: Option<Value>,
    eos_token_id: Option<Value>,
    pad_token_id: Option<Value>,
    // Of a perceptron.
    hidden_sizes: Option<Vec<u64>>,
    hidden_act: Option<String>,
    hidden_dropout_prob: Option<f64>,
    input_size: Option<u64>,
    num_labels: Option<u64>,
}

/// What these bytes say, or what is wrong with them.
pub fn parse(bytes: &[u8]) -> Result<Description, String> {
    let raw: Raw = serde_json::from_slice(bytes)
        .map_err(|error| format!("cannot be read: {}", clip(&error.to_string())))?;
    match raw.model_type.as_deref() {
        Some("gpt2") => gpt(raw),
        Some(PERCEPTRON) => perceptron(raw),
        Some(other) => Err(format!(
            "model_type is `{}`: only gpt2 can be read",
            clip(other)
        )),
        None => Err("has no `model_type`: only gpt2 can be read".into()),
    }
}

/// A perceptron as [`write`] describes one.
fn perceptron(raw: Raw) -> Result<Description, String> {
    let sizes = [
        ("input_size", raw.input_size, PIXELS),
        ("num_labels", raw.num_labels, CLASSES),
    ];
    for (key, value, only) in sizes {
        if value != Some(only as u64) {
            return Err(format!("{key} is not {only}, as for the images of digits"));
        }
    }
    if raw.hidden_act.as_deref() != Some(ACTIVATION) {
        return Err(format!("hidden_act is not {ACTIVATION}"));
    }
    let hidden = raw.hidden_sizes.unwrap_or_default();
    if hidden.is_empty() || hidden.len() as u64 > MOST_BLOCKS {
        return Err(format!("hidden_sizes must list 1 to {MOST_BLOCKS} widths"));
    }
    for &width in &hidden {
        size("hidden_sizes", Some(width), u32::MAX.into())?;
    }
    let dropout = raw.hidden_dropout_prob.unwrap_or(0.0);
    if !(0.0..1.0).contains(&dropout) {
        return Err(format!(
            "hidden_dropout_prob is {dropout}: it must be from 0 to below 1"
        ));
    }
    Ok(Description {
        model: Architecture::Perceptron { hidden, dropout },
        one_dropout: true,
        ids: Map::new(),
    })
}

fn gpt(raw: Raw) -> Result<Description, String> {
    let unsupported = [
        ("scale_attn_weights", raw.scale_attn_weights, true),
        (
            "scale_attn_by_inverse_layer_idx",
            raw.scale_attn_by_inverse_layer_idx,
            false,
        ),
        (
            "reorder_and_upcast_attn",
            raw.reorder_and_upcast_attn,
            false,
        ),
        ("add_cross_attention", raw.add_cross_attention, false),
        ("is_encoder_decoder", raw.is_encoder_decoder, false),
    ];
    for (key, value, only) in unsupported {
        if value.is_some_and(|value| value != only) {
            return Err(format!("{key} is {}: only {only} can be trained", !only));
        }
    }
    if raw.quantization_config.is_some() {
        return Err(
            "quantization_config: quantized weights cannot be trained: save them in float32".into(),
        );
    }
    let width = size("n_embd", raw.n_embd, u32::MAX.into())?;
    if let Some(inner) = raw.n_inner
        && inner != 4 * width as u64
    {
        return Err(format!(
            "n_inner is {inner}: only 4 times n_embd = {} can be trained",
            4 * width as u64
        ));
    }
    let heads = size("n_head", raw.n_head, u32::MAX.into())?;
    if !width.is_multiple_of(heads) {
        return Err(format!("n_head = {heads} does not divide n_embd = {width}"));
    }
    let gelu = match raw.activation_function.as_deref() {
        None | Some("gelu_new" | "gelu_pytorch_tanh") => Gelu::Tanh,
        Some("gelu") => Gelu::Erf,
        Some(other) => {
            return Err(format!(
                "activation_function is `{}`: only gelu_new, gelu_pytorch_tanh and gelu can be trained",
                clip(other)
            ));
        }
    };
    let dropouts = [
        ("embd_pdrop", raw.embd_pdrop),
        ("attn_pdrop", raw.attn_pdrop),
        ("resid_pdrop", raw.resid_pdrop),
    ];
    // What is not said is what the class sets.
    let dropouts = dropouts.map(|(key, share)| (key, share.unwrap_or(0.1)));
    if let Some((key, share)) = dropouts
        .iter()
        .find(|(_, share)| !(0.0..1.0).contains(share))
    {
        return Err(format!("{key} is {share}: it must be from 0 to below 1"));
    }
    let [(_, dropout), others @ ..] = dropouts;
    let one_dropout = others.iter().all(|(_, share)| *share == dropout);
    let layer_norm_eps = raw.layer_norm_epsilon.unwrap_or(1e-5);
    if !layer_norm_eps.is_finite() || layer_norm_eps < 0.0 {
        return Err(format!(
            "layer_norm_epsilon is {layer_norm_eps}: it must be from 0 up"
        ));
    }
    let ids = IDS
        .into_iter()
        .zip([raw.bos_token_id, raw.eos_token_id, raw.pad_token_id]);
    let mut known = Map::new();
    for (key, value) in ids {
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
    Ok(Description {
        ids: known,
        model: Architecture::Gpt(GptConfig {
            vocab: size("vocab_size", raw.vocab_size, u32::MAX.into())?,
            context: size(
                "n_positions",
                raw.n_positions.or(raw.n_ctx),
                u32::MAX.into(),
            )?,
            width,
            blocks: size("n_layer", raw.n_layer, MOST_BLOCKS)?,
            heads,
            tied: raw.tie_word_embeddings.unwrap_or(true),
            gelu,
            layer_norm_eps: layer_norm_eps as f32,
            dropout: if one_dropout { dropout as f32 } else { 0.0 },
        }),
        one_dropout,
    })
}

fn size(key: &str, value: Option<u64>, most: u64) -> Result<usize, String> {
    match value {
        // It fits: `most` does not exceed 32 bits.
        Some(value) if (1..=most).contains(&value) => Ok(value as usize),
        Some(value) => Err(format!("{key} is {value}: it must be from 1 to {most}")),
        None => Err(format!("has no `{key}`")),
    }
}

/// The beginning of a text that a file decides the length of.
fn clip(text: &str) -> &str {
    const MOST: usize = 200;
    let end = (0..=MOST.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The file for a model that is configured, with these of the keys [`IDS`].
pub fn write(config: &Config, ids: &Map<String, Value>) -> anyhow::Result<Vec<u8>> {
    let model = &config.model;
    let dropout = model.dropout.get();
    if let Some(hidden) = &model.hidden {
        return pretty(&json!({
            "model_type": PERCEPTRON,
            "hidden_act": ACTIVATION,
            "hidden_dropout_prob": dropout,
            "hidden_sizes": hidden.get(),
            "input_size": PIXELS,
            "num_labels": CLASSES,
            "torch_dtype": "float32",
        }));
    }
    let activation = match model.gelu.0 {
        Gelu::Tanh => "gelu_new",
        Gelu::Erf => "gelu",
    };
    let mut object = json!({
        "activation_function": activation,
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": dropout,
        "bos_token_id": null,
        "embd_pdrop": dropout,
        "eos_token_id": null,
        "layer_norm_epsilon": model.layer_norm_eps.get(),
        "model_type": "gpt2",
        "n_ctx": model.context.get(),
        "n_embd": model.width.get(),
        "n_head": model.heads.get(),
        "n_inner": null,
        "n_layer": model.blocks.get(),
        "n_positions": model.context.get(),
        "resid_pdrop": dropout,
        "tie_word_embeddings": model.tied,
        "torch_dtype": "float32",
        "vocab_size": model.vocab.get(),
    });
    for (key, value) in ids {
        object[key] = value.clone();
    }
    pretty(&object)
}

fn pretty(object: &Value) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(object)?;
    bytes.push(b'\n');
    Ok(bytes)
}
