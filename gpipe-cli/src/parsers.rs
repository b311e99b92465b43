//! All parsers of external input as functions from bytes to text, for fuzzers and tests. Not a stable
//! interface.
//!
//! Each returns the parsed value as text, or the error line that the user would see.

use std::path::Path;

use clap::Parser as _;

use gpipe_checkpoint::Manifest;
use gpipe_data::{StreamDecoder, Vocabulary};
use gpipe_train::{Overrides, cost_import};

use crate::args::{Args, Settings};
use crate::fail::{Fail, Result};

/// The parsed value as text, or the error line.
pub type Answer = std::result::Result<String, String>;

/// Parses a configuration file; returns the complete configuration.
///
/// # Errors
/// The line that the user sees.
pub fn config(text: &[u8]) -> Answer {
    let resolve = || {
        let overrides = Overrides::new().file_bytes(Path::new("file.toml"), text.to_vec())?;
        Ok(overrides.resolve()?.to_toml()?)
    };
    answer(resolve())
}

/// Parses a `--set` argument, which can set every key.
///
/// # Errors
/// The line that the user sees.
pub fn setting(text: &str) -> Answer {
    let settings = Settings {
        set: vec![text.to_owned()],
        ..Settings::default()
    };
    answer(settings.resolve().and_then(|config| Ok(config.to_toml()?)))
}

/// Parses a command line, without the name of the program.
///
/// # Errors
/// The line that the user sees.
pub fn command_line<'a>(arguments: impl Iterator<Item = &'a str>) -> Answer {
    let arguments = std::iter::once("gpipe").chain(arguments);
    match Args::try_parse_from(arguments) {
        Ok(args) => Ok(format!("{args:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the list of `plan --costs`.
///
/// # Errors
/// The line that the user sees.
pub fn costs(text: &str) -> Answer {
    let costs = cost_import::parse_list(text).map(|costs| {
        let costs: Vec<String> = costs.iter().map(u64::to_string).collect();
        costs.join(",")
    });
    answer(costs.map_err(Fail::from))
}

/// Parses the list of files in the `manifest.json` of a checkpoint, sealed with its digest here to get
/// past that check. Returns the list.
///
/// # Errors
/// The line that the user sees.
pub fn manifest(list: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let manifest = Manifest::parse(bytes).map_err(|fault| Fail::invalid(fault.to_string()))?;
        let bytes = manifest.to_bytes().map_err(Fail::run)?;
        let list = Manifest::unsealed(&bytes).unwrap_or_default();
        Ok(String::from_utf8_lossy(list).into_owned())
    };
    // The unsealed list must be refused without a panic.
    answer(read(list)).or_else(|_| answer(read(&Manifest::seal(list))))
}

/// Parses the `config.json` of a model.
///
/// # Errors
/// The line that the user sees.
pub fn model_config(bytes: &[u8]) -> Answer {
    let described = gpipe_hf::parse_config(bytes);
    answer(described.map_or_else(in_file("config.json"), |known| Ok(format!("{known:?}"))))
}

/// Parses the header of a GGUF file.
///
/// # Errors
/// The line that the user sees.
pub fn gguf(bytes: &[u8]) -> Answer {
    let read = gpipe_hf::parse_gguf(bytes);
    answer(
        read.map_or_else(in_file("model.gguf"), |(known, tokenizer)| {
            Ok(format!("{known:?} {}", String::from_utf8_lossy(&tokenizer)))
        }),
    )
}

/// Parses the `model.safetensors.index.json` of a model; returns the index.
///
/// # Errors
/// The line that the user sees.
pub fn weights_index(bytes: &[u8]) -> Answer {
    let index = gpipe_hf::parse_index(bytes);
    answer(
        index.map_or_else(in_file("model.safetensors.index.json"), |index| {
            Ok(serde_json::json!({ "weight_map": index.weight_map }).to_string())
        }),
    )
}

/// Parses a `tokenizer.json`; returns the tokens of a text and their decoding.
///
/// # Errors
/// The line that the user sees.
pub fn tokenizer(bytes: &[u8]) -> Answer {
    const TEXT: &str = "The pipe drains, 12 don't\n\n  \u{e9}e\u{301}\u{1f642} <|end|> the";
    let decode = || {
        let vocabulary = Vocabulary::parse(bytes)?;
        let tokens = vocabulary.encode(TEXT.into(), 1, "the text")?;
        let mut decoder = StreamDecoder::new(&vocabulary);
        let mut text: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        text += &decoder.finish();
        Ok::<_, gpipe_data::Error>(format!("{} {tokens:?} {text:?}", vocabulary.size()))
    };
    answer(decode().or_else(in_file("tokenizer.json")))
}

/// Names the file in an error.
fn in_file<T, E: std::fmt::Display>(file: &str) -> impl FnOnce(E) -> Result<T> + use<'_, T, E> {
    move |error| Err(Fail::invalid(format!("{file}: {error}")))
}

fn answer(result: Result<String>) -> Answer {
    result.map_err(|fail| fail.line().unwrap_or_default())
}
