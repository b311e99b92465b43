//! Rotary positions: their base, and how much slower they turn, which stand in an object of their own since version 5 of
//! `transformers`.

use gpipe_tensor::ops::RopeScaling;
use serde_json::{Map, Value, json};

use super::keys::{Keys, clip};

/// The kinds that are computed here.
const PLAIN: &str = "default";
const LINEAR: &str = "linear";
const LLAMA3: &str = "llama3";

/// The base and the scaling of a model of this many positions.
pub fn read(keys: &Keys, context: usize) -> Result<(f64, RopeScaling), String> {
    // The first of them that says something is the one that the classes take.
    let objects = [
        ("rope_scaling", &keys.rope_scaling),
        ("rope_parameters", &keys.rope_parameters),
    ];
    let says = |object: &&Value| object.as_object().is_none_or(|object| !object.is_empty());
    let mut objects = objects.into_iter();
    let nested = objects.find_map(|(key, object)| Some((key, object.as_ref().filter(says)?)));
    let (theta, scaling) = match nested {
        Some((key, object)) => {
            let original = keys.original_max_position_embeddings;
            nested_keys(key, object, original, context as u64)?
        }
        None => (None, RopeScaling::Unscaled),
    };
    let theta = theta.or(keys.rope_theta).unwrap_or(1e4);
    Ok((base("rope_theta", theta)?, scaling))
}

/// A base, if it is one.
pub fn base(key: &str, theta: f64) -> Result<f64, String> {
    match theta.is_finite() && theta > 0.0 {
        true => Ok(theta),
        false => Err(format!("{key} is {theta}: it must be above 0")),
    }
}

/// The base that an object has, if it has one, and the scaling; other kinds of positions are refused by their names.
pub fn nested_keys(
    key: &str,
    object: &Value,
    original: Option<u64>,
    context: u64,
) -> Result<(Option<f64>, RopeScaling), String> {
    let Some(object) = object.as_object() else {
        return Err(format!(
            "{key} is no object: only an object or null can be read"
        ));
    };
    if let Some((blocks, _)) = object.iter().find(|(_, value)| value.is_object()) {
        return Err(format!(
            "{key} has positions for `{}`: only the same for all blocks can be trained",
            clip(blocks)
        ));
    }
    let of = |name: &str| object.get(name).filter(|value| !value.is_null());
    let number = |name: &str| match of(name) {
        Some(value) if !value.is_number() => Err(format!(
            "{name} in {key} is {}: use a number",
            clip(&value.to_string())
        )),
        value => Ok(value.and_then(Value::as_f64)),
    };
    let needed = |name: &str| number(name)?.ok_or_else(|| format!("{key} has no `{name}`"));
    let kind = of("rope_type").or_else(|| of("type"));
    let scaling = match kind.map_or(Some(PLAIN), Value::as_str) {
        Some(PLAIN) => RopeScaling::Unscaled,
        Some(LINEAR) => RopeScaling::Linear {
            factor: needed("factor")?,
        },
        Some(LLAMA3) => {
            const ORIGINAL: &str = "original_max_position_embeddings";
            number(ORIGINAL)?;
            let of_object = || of(ORIGINAL).map_or(Some(context), Value::as_u64);
            let Some(original_positions) = original.or_else(of_object) else {
                return Err(format!("{ORIGINAL} in {key} is no whole number"));
            };
            RopeScaling::Llama3 {
                factor: needed("factor")?,
                low_frequency: needed("low_freq_factor")?,
                high_frequency: needed("high_freq_factor")?,
                original_positions,
            }
        }
        kind => {
            return Err(format!(
                "rope_type in {key} is `{}`: only {PLAIN}, {LINEAR} and {LLAMA3} can be trained",
                clip(kind.unwrap_or("no text"))
            ));
        }
    };
    scaling.check().map_err(|fault| format!("{key}: {fault}"))?;
    if let Some(share) = number("partial_rotary_factor")?.filter(|&share| share != 1.0) {
        return Err(format!(
            "partial_rotary_factor in {key} is {share}: only 1 can be trained"
        ));
    }
    Ok((number("rope_theta")?, scaling))
}

/// The keys that say so, which versions before 5 of `transformers` can read too.
pub fn write(theta: f64, scaling: RopeScaling) -> Map<String, Value> {
    let mut keys = Map::from_iter([("rope_theta".to_owned(), json!(theta))]);
    let object = match scaling {
        RopeScaling::Linear { factor } => json!({"rope_type": LINEAR, "factor": factor}),
        RopeScaling::Llama3 {
            factor,
            low_frequency,
            high_frequency,
            original_positions,
        } => json!({
            "rope_type": LLAMA3,
            "factor": factor,
            "low_freq_factor": low_frequency,
            "high_freq_factor": high_frequency,
            "original_max_position_embeddings": original_positions,
        }),
        _ => return keys,
    };
    keys.insert("rope_scaling".to_owned(), object);
    keys
}
