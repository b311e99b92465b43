//! Adapters of linear layers (LoRA) in the folders of `peft`: `adapter_config.json` and
//! `adapter_model.safetensors`.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use gpipe_files::{Links, read_capped};
use gpipe_layers::LoraSettings;
use gpipe_layers::models::ModelConfig;
use gpipe_tensor::Tensor;
use gpipe_tensor::safetensors::{self, FileContents, Stored};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::layout::{from_file_layout, shape_in_memory};

/// The file of rank, scale and targets.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";
/// The file of the matrices.
pub const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// What `peft` puts before the names of parameters.
pub(crate) const PREFIX: &str = "base_model.model.";
const A: &str = ".lora_A.weight";
const B: &str = ".lora_B.weight";

/// The mend where a file of an adapter cannot be read.
pub(crate) const MEND: &str =
    "name a folder with adapter_config.json and adapter_model.safetensors";

/// The largest `adapter_config.json` that is read.
const LARGEST: u64 = 1 << 20;

/// Keys of adapters that compute something else, where they are set.
const NOT_BUILT: [&str; 15] = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "exclude_modules",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
];

/// Whether a parameter of this name belongs to an adapter
/// ([`Linear::with_lora`](gpipe_layers::layers::Linear::with_lora)).
pub fn is_adapter(name: &str) -> bool {
    name.ends_with(A) || name.ends_with(B)
}

/// What `adapter_config.json` says of an adapter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adapter {
    /// Rank, scale and dropout.
    pub settings: LoraSettings,
    /// A regular expression that is found in the names of the linear layers that have adapters.
    pub targets: String,
    /// The model that it was trained with, if the file names one.
    pub base: Option<String>,
}

/// Reads `adapter_config.json` in a folder of `peft`.
///
/// # Errors
/// [`Error::File`] if the file is missing or longer than 1 MiB, [`Error::Invalid`] if it describes no adapter that is
/// built here.
pub fn read_adapter(folder: &Path) -> Result<Adapter> {
    let path = folder.join(ADAPTER_CONFIG);
    let bytes = read_capped(&path, LARGEST, Links::Followed, MEND)?;
    parse(&bytes).map_err(|fault| Error::Invalid { path, fault })
}

/// What these bytes say, or what is wrong with them.
pub(crate) fn parse(bytes: &[u8]) -> std::result::Result<Adapter, String> {
    let keys: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| format!("cannot be read: {error}"))?;
    let refused = |key: &str, value: &Value, mend: &str| {
        let value: String = value.to_string().chars().take(100).collect();
        Err(format!("`{key}` is {value}: {mend}"))
    };
    let of = |key: &str| keys.get(key).unwrap_or(&Value::Null);
    if of("peft_type") != "LORA" {
        return refused("peft_type", of("peft_type"), "only LORA can be read");
    }
    if !matches!(of("bias"), Value::Null) && of("bias") != "none" {
        return refused("bias", of("bias"), "only adapters with none can be read");
    }
    if let Some(key) = NOT_BUILT.into_iter().find(|key| !is_unset(of(key))) {
        return refused(key, of(key), "such adapters are not built here");
    }
    // These change the weights of the model, which is then another.
    if let Some(init) = of("init_lora_weights").as_str()
        && !["gaussian", "eva", "orthogonal"].contains(&init)
    {
        let mend = "save it in peft as an adapter of the original model";
        return refused("init_lora_weights", of("init_lora_weights"), mend);
    }
    let rank = match of("r").as_u64() {
        Some(rank) if (1..=u64::from(u32::MAX)).contains(&rank) => rank as usize,
        _ => return refused("r", of("r"), "use a whole number from 1 up"),
    };
    let alpha = match of("lora_alpha").as_f64() {
        Some(alpha) if alpha >= 0.0 && (alpha as f32).is_finite() => alpha as f32,
        _ => {
            let mend = "use a finite number from 0 up";
            return refused("lora_alpha", of("lora_alpha"), mend);
        }
    };
    let dropout = match of("lora_dropout") {
        Value::Null => Some(0.0),
        share => share.as_f64(),
    };
    let dropout = match dropout {
        Some(share) if share >= 0.0 && (share as f32) < 1.0 => share as f32,
        _ => {
            let mend = "use a number from 0 to below 1";
            return refused("lora_dropout", of("lora_dropout"), mend);
        }
    };
    let targets = match of("target_modules") {
        Value::String(all) if all == "all-linear" => ".".to_owned(),
        Value::String(pattern) if !pattern.is_empty() => format!("^(?:{pattern})$"),
        Value::Array(names) if !names.is_empty() && names.iter().all(Value::is_string) => {
            let names = names.iter().filter_map(Value::as_str).map(escaped);
            format!(r"(^|\.)({})$", names.collect::<Vec<_>>().join("|"))
        }
        other => {
            let mend = "it must name the layers that have adapters";
            return refused("target_modules", other, mend);
        }
    };
    Ok(Adapter {
        settings: LoraSettings {
            rank,
            alpha,
            dropout,
        },
        targets,
        base: of("base_model_name_or_path").as_str().map(str::to_owned),
    })
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        _ => false,
    }
}

/// A regular expression of this text.
fn escaped(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let escape = |c| match plain(c) {
        true => vec![c],
        false => vec!['\\', c],
    };
    name.chars().flat_map(escape).collect()
}

/// The files of a folder of `peft`, by name, for the adapters among these parameters, which the model called `base`
/// was trained with.
///
/// # Errors
/// [`Error::Save`] if two values have one name.
pub fn adapter_files(
    model: &ModelConfig,
    values: &[(String, Stored)],
    settings: LoraSettings,
    base: &str,
) -> Result<Vec<(String, FileContents)>> {
    let task = match model {
        ModelConfig::Gpt(_) | ModelConfig::Llama(_) => Some("CAUSAL_LM"),
        _ => None,
    };
    let config = json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": is_transposed(model),
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": shortest(settings.alpha),
        "lora_dropout": shortest(settings.dropout),
        "peft_type": "LORA",
        "r": settings.rank,
        "target_modules": targets(values),
        "task_type": task,
    });
    let mut config = serde_json::to_vec_pretty(&config)?;
    config.push(b'\n');
    let adapters = values.iter().filter(|(name, _)| is_adapter(name));
    let stored = adapters.map(|(name, value)| (format!("{PREFIX}{name}"), value.clone()));
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let weights = safetensors::contents(&stored.collect::<Vec<_>>(), &metadata)?;
    Ok(vec![
        (ADAPTER_CONFIG.to_owned(), config.into()),
        (ADAPTER_WEIGHTS.to_owned(), weights),
    ])
}

/// The shortest number that reads back as this one, whole if it is.
fn shortest(number: f32) -> Value {
    match number.fract() == 0.0 && number.abs() < 1e9 {
        true => Value::from(number as i64),
        false => Value::from(number.to_string().parse().unwrap_or(f64::from(number))),
    }
}

/// The layers with adapters: by the ends of their names where all layers of that end have one.
fn targets(values: &[(String, Stored)]) -> BTreeSet<&str> {
    let adapted: BTreeSet<&str> = values
        .iter()
        .filter_map(|(n, _)| n.strip_suffix(A))
        .collect();
    let end = |layer: &'_ str| layer.rsplit('.').next().map(str::len).unwrap_or_default();
    let ends: BTreeSet<&str> = (adapted.iter())
        .map(|layer| &layer[layer.len() - end(layer)..])
        .collect();
    let mut layers = (values.iter()).filter_map(|(name, _)| name.strip_suffix(".weight"));
    let others = layers
        .any(|layer| ends.contains(&layer[layer.len() - end(layer)..]) && !adapted.contains(layer));
    if others { adapted } else { ends }
}

/// Whether the weights of this family are (inputs, outputs).
fn is_transposed(model: &ModelConfig) -> bool {
    matches!(model, ModelConfig::Gpt(_))
}

/// A parameter by its global name, from how a file of a model or of an adapter has it.
pub fn from_file(name: String, tensor: Stored) -> (String, Stored) {
    let shape = shape_in_memory(tensor.shape());
    let tensor = tensor.map(shape, from_file_layout);
    match name.strip_prefix(PREFIX) {
        Some(bare) if is_adapter(bare) => (bare.to_owned(), tensor),
        _ => (name, tensor),
    }
}

/// The parameters of the model that computes without adapters what this one computes with them, to rounding: weights
/// become W + α/r · B·A.
///
/// # Errors
/// [`Error::Save`] if there is no room, or an adapter is not A (r, inputs) and B (outputs, r) of a weight.
pub fn merged(
    model: &ModelConfig,
    values: Vec<(String, Tensor)>,
    settings: LoraSettings,
) -> Result<Vec<(String, Tensor)>> {
    let (adapters, base): (Vec<_>, Vec<_>) = values.into_iter().partition(|(n, _)| is_adapter(n));
    let mut adapters: HashMap<String, Tensor> = adapters.into_iter().collect();
    let mut all = Vec::with_capacity(base.len());
    for (name, weight) in base {
        let layer = name.strip_suffix(".weight").unwrap_or(&name);
        let mut of = |part: &str| adapters.remove(&format!("{layer}{part}"));
        let weight = match (of(A), of(B)) {
            (None, None) => weight,
            (a, b) => with_adapter(layer, weight, a.zip(b), settings, is_transposed(model))?,
        };
        all.push((name, weight));
    }
    match adapters.into_keys().min() {
        None => Ok(all),
        Some(name) => Err(gpipe_tensor::Error::Argument {
            op: "merged",
            message: format!("`{name}` belongs to no weight: take the values of one model"),
        }
        .into()),
    }
}

/// W + α/r · B·A, where W is (inputs, outputs) if `transposed`, else (outputs, inputs).
fn with_adapter(
    layer: &str,
    weight: Tensor,
    adapter: Option<(Tensor, Tensor)>,
    settings: LoraSettings,
    transposed: bool,
) -> Result<Tensor> {
    let rank = settings.rank;
    let misfit = || gpipe_tensor::Error::Shape {
        op: "merged",
        expected: format!("A ({rank}, inputs) and B (outputs, {rank}) for `{layer}.weight`"),
        got: weight.shape().to_string(),
    };
    let (outputs, inputs) = match (weight.shape().dims(), transposed) {
        (&[inputs, outputs], true) | (&[outputs, inputs], false) => (outputs, inputs),
        _ => return Err(misfit().into()),
    };
    let fits = |(a, b): &(Tensor, Tensor)| {
        a.shape().dims() == [rank, inputs] && b.shape().dims() == [outputs, rank]
    };
    let (a, b) = adapter
        .filter(|pair| rank > 0 && fits(pair))
        .ok_or_else(misfit)?;
    let (mut sums, a, b) = (weight.to_f32s()?, a.to_f32s()?, b.to_f32s()?);
    for (o, b) in b.chunks_exact(rank).enumerate() {
        for i in 0..inputs {
            let products = b.iter().enumerate();
            let product: f32 = products.map(|(r, b)| b * a[r * inputs + i]).sum();
            let place = match transposed {
                true => i * outputs + o,
                false => o * inputs + i,
            };
            sums[place] += settings.scale() * product;
        }
    }
    Ok(Tensor::from_f32(
        weight.device(),
        weight.shape().clone(),
        sums,
    )?)
}
