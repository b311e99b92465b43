//! `config.json`: classes of `transformers`, a perceptron in keys of the same kind, and networks for images in keys
//! of our own.
//!
//! A new family joins here: a file with `read` and `write`, its keys in [`keys`], its name in [`TYPES`], and one arm
//! in [`parse`] and in [`write`].

mod gemma;
mod gpt2;
mod image;
mod keys;
mod llama;
mod mlp;
mod rope;
mod seq2seq;

use std::path::Path;

use gpipe_files::{Links, read_capped};
use gpipe_layers::models::ModelConfig;
use serde_json::{Map, Value};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::gguf::{self, is_gguf};
use crate::names::{CONFIG, MEND};
pub use image::{class_names, ids_of_classes};
use keys::{Keys, clip};
pub(crate) use keys::{LARGEST_SIZE, MOST_LAYERS, epsilon, size};

/// The values of `model_type` that can be read, in a message.
const READ: &str = "gpt2, llama, qwen2, qwen3, mistral and gemma3_text";

/// All of them, with those of this crate's own.
const TYPES: [&str; 9] = [
    gpt2::TYPE,
    llama::LLAMA,
    llama::QWEN2,
    llama::QWEN3,
    llama::MISTRAL,
    gemma::TYPE,
    mlp::TYPE,
    image::TYPE,
    seq2seq::TYPE,
];

/// The largest `config.json` that is read.
const LARGEST: u64 = 1 << 20;

/// Reads what `config.json` in a folder says of the model, or the metadata of a GGUF file.
///
/// # Errors
/// [`Error::File`] if the file is missing or longer than 1 MiB, [`Error::Invalid`] if it describes no
/// model that can be trained.
pub fn read_config(folder: &Path) -> Result<Description> {
    if is_gguf(folder) {
        return gguf::describe(folder);
    }
    let path = folder.join(CONFIG);
    let bytes = read_capped(&path, LARGEST, Links::Followed, MEND)?;
    parse(&bytes).map_err(|fault| Error::Invalid { path, fault })
}

/// What the bytes of a `config.json` say of the model.
///
/// # Errors
/// [`Error::Malformed`] if they describe no model that can be trained.
///
/// ```
/// use gpipe_layers::models::ModelConfig;
///
/// let bytes = br#"{"model_type": "gpt2", "n_embd": 48, "n_head": 3, "n_layer": 5,
///                  "n_positions": 64, "vocab_size": 256}"#;
/// let ModelConfig::Gpt(gpt) = gpipe_hf::parse_config(bytes)?.model else { unreachable!() };
/// // What the file leaves out is what the class sets.
/// assert_eq!((gpt.blocks, gpt.dropout, gpt.tied), (5, 0.1, true));
/// # Ok::<_, gpipe_hf::Error>(())
/// ```
pub fn parse_config(bytes: &[u8]) -> Result<Description> {
    parse(bytes).map_err(Error::Malformed)
}

/// What these bytes say, or what is wrong with them.
pub(crate) fn parse(bytes: &[u8]) -> std::result::Result<Description, String> {
    let keys: Keys = serde_json::from_slice(bytes).map_err(|error| unread(bytes, &error))?;
    match keys.model_type.as_deref() {
        Some(gpt2::TYPE) => gpt2::read(keys),
        Some(llama::LLAMA) => llama::read(keys, llama::LLAMA),
        Some(llama::QWEN2) => llama::read(keys, llama::QWEN2),
        Some(llama::QWEN3) => llama::read(keys, llama::QWEN3),
        Some(llama::MISTRAL) => llama::read(keys, llama::MISTRAL),
        Some(gemma::TYPE) => llama::read(keys, gemma::TYPE),
        Some(mlp::TYPE) => mlp::read(keys),
        Some(image::TYPE) => image::read(keys),
        Some(seq2seq::TYPE) => seq2seq::read(keys),
        Some(other) => Err(unknown(other)),
        None => Err(format!("has no `model_type`: only {READ} can be read")),
    }
}

/// Why a model of this type cannot be read.
fn unknown(model_type: &str) -> String {
    let model_type = clip(model_type);
    format!("model_type is `{model_type}`: only {READ} can be read")
}

/// Why these bytes cannot be read: a model of another type, whose keys may have values of other types, or a key of
/// which the value is of another type, if there is one.
fn unread(bytes: &[u8], error: &serde_json::Error) -> String {
    let all = serde_json::from_slice::<Map<String, Value>>(bytes).unwrap_or_default();
    let model_type = all.get("model_type").and_then(Value::as_str);
    if let Some(other) = model_type.filter(|of| !TYPES.contains(of)) {
        return unknown(other);
    }
    let mut faults = all.into_iter().filter_map(|(key, value)| {
        let one = Value::Object(Map::from_iter([(key.clone(), value)]));
        let error = serde_json::from_value::<Keys>(one).err()?;
        Some(format!(
            "{key} cannot be read: {}",
            clip(&error.to_string())
        ))
    });
    let fault = faults.next();
    fault.unwrap_or_else(|| format!("cannot be read: {}", clip(&error.to_string())))
}

/// The file for a model with these of the keys of [`Description::ids`], which is read again as the
/// same.
pub(crate) fn write(model: &ModelConfig, ids: &Map<String, Value>) -> Result<Vec<u8>> {
    let object = match model {
        ModelConfig::Gpt(config) => gpt2::write(config, ids),
        ModelConfig::Llama(config) => llama::write(config, ids).map_err(Error::NotWritable)?,
        ModelConfig::Mlp(config) => mlp::write(config)?,
        ModelConfig::Image(config) => image::write(config, ids),
        ModelConfig::Seq2Seq(config) => seq2seq::write(config),
        _ => {
            let fault = "config.json has no words for its family".to_owned();
            return Err(Error::NotWritable(fault));
        }
    };
    let mut bytes = serde_json::to_vec_pretty(&object)?;
    bytes.push(b'\n');
    match parse(&bytes) {
        Ok(described) if described.model == *model => Ok(bytes),
        Ok(_) => Err(Error::NotWritable(
            "config.json would describe another".to_owned(),
        )),
        Err(fault) => Err(Error::NotWritable(fault)),
    }
}
