//! What Gemma 3 has of its own, as the class `Gemma3TextConfig` of `transformers` has it.

use gpipe_layers::models::LlamaConfig;
use gpipe_tensor::ops::RopeScaling;
use serde_json::{Map, Value, json};

use super::keys::{FULL, Keys, LARGEST_SIZE, MOST_LAYERS, SLIDING, clip, size};
use super::rope;

/// The `model_type`.
pub const TYPE: &str = "gemma3_text";

/// The only function of gates that is computed here.
const ACTIVATION: &str = "gelu_pytorch_tanh";

/// Of as many blocks in a row, the last one sees all positions where the file says nothing else.
const PATTERN: u64 = 6;

/// What in a file cannot be trained.
pub fn check(keys: &Keys, head_size: usize) -> Result<(), String> {
    if let Some(other) = keys.hidden_activation.as_deref()
        && other != ACTIVATION
    {
        return Err(format!(
            "hidden_activation is `{}`: only {ACTIVATION} can be trained",
            clip(other)
        ));
    }
    let scalar = keys.query_pre_attn_scalar.unwrap_or(256.0);
    if scalar != head_size as f64 {
        return Err(format!(
            "query_pre_attn_scalar is {scalar}: only the size of a head, {head_size}, can be trained"
        ));
    }
    for (key, cap) in [
        ("attn_logit_softcapping", keys.attn_logit_softcapping),
        ("final_logit_softcapping", keys.final_logit_softcapping),
    ] {
        if let Some(cap) = cap {
            return Err(format!("{key} is {cap}: only null can be trained"));
        }
    }
    if keys.use_bidirectional_attention == Some(true) {
        return Err(
            "use_bidirectional_attention is true: only models that see earlier positions alone can be trained"
                .into(),
        );
    }
    Ok(())
}

/// The window, and of how many blocks in a row the last one has none; neither where no block has a window.
pub fn windows(keys: &Keys) -> Result<(Option<usize>, Option<usize>), String> {
    let blocks = size("num_hidden_layers", keys.num_hidden_layers, MOST_LAYERS)?;
    let pattern = keys.sliding_window_pattern.or(Some(PATTERN));
    let pattern = size("sliding_window_pattern", pattern, LARGEST_SIZE)?;
    let types = keys.layer_types.as_deref();
    let is_full = |block: usize| match types {
        Some(types) => types.get(block).is_some_and(|of| of == FULL),
        None => (block + 1).is_multiple_of(pattern),
    };
    let every = match (0..blocks).find(|&block| is_full(block)) {
        Some(first) => first + 1,
        None => pattern.max(blocks + 1),
    };
    if (0..blocks).any(|block| is_full(block) != (block + 1).is_multiple_of(every)) {
        return Err(format!(
            "layer_types: only {FULL} after the same number of {SLIDING} each time can be trained"
        ));
    }
    if every == 1 {
        return Ok((None, None));
    }
    // What the class sets where the key is missing.
    let window = keys.sliding_window.unwrap_or(Some(4096));
    let window = size("sliding_window", window, LARGEST_SIZE)?;
    Ok((Some(window), Some(every)))
}

/// The base and the scaling of blocks without a window, and the base of the others.
pub fn rope(keys: &Keys, context: usize) -> Result<(f64, RopeScaling, f64), String> {
    const KEY: &str = "rope_parameters";
    let none = Map::new();
    let nested = match &keys.rope_parameters {
        None => &none,
        Some(nested) => nested
            .as_object()
            .ok_or_else(|| format!("{KEY} is no object: only an object or null can be read"))?,
    };
    let of = |kind: &str| {
        let own = nested.get(kind).filter(|own| !own.is_null());
        own.cloned().unwrap_or_else(|| json!({}))
    };
    let mut full = of(FULL);
    if let (Some(full), Some(Value::Object(scaling))) = (full.as_object_mut(), &keys.rope_scaling) {
        full.extend(scaling.clone());
    }
    let (theta, scaling) = rope::nested_keys(KEY, &full, None, context as u64)?;
    let (window_theta, of_window) = rope::nested_keys(KEY, &of(SLIDING), None, context as u64)?;
    if of_window != RopeScaling::Unscaled {
        return Err(format!(
            "rope_type of {SLIDING} in {KEY}: only default can be trained"
        ));
    }
    // What the class sets where the keys are missing.
    let theta = theta.or(keys.rope_theta).unwrap_or(1e6);
    let window_theta = window_theta.or(keys.rope_local_base_freq).unwrap_or(1e4);
    Ok((
        rope::base("rope_theta", theta)?,
        scaling,
        rope::base("rope_local_base_freq", window_theta)?,
    ))
}

/// Its own keys in an object.
pub fn write(config: &LlamaConfig, object: &mut Value) {
    let every = config.full_every.unwrap_or(1);
    let kind = |block: usize| match (block + 1).is_multiple_of(every) {
        true => FULL,
        false => SLIDING,
    };
    let types: Vec<&str> = (0..config.blocks).map(kind).collect();
    if let Some(object) = object.as_object_mut() {
        object.remove("hidden_act");
    }
    object["hidden_activation"] = ACTIVATION.into();
    object["query_pre_attn_scalar"] = config.head_size.into();
    object["layer_types"] = types.into();
    object["sliding_window"] = config.window.into();
    object["sliding_window_pattern"] = every.into();
    object["rope_local_base_freq"] = config.window_theta.into();
    object["attn_logit_softcapping"] = Value::Null;
    object["final_logit_softcapping"] = Value::Null;
}
