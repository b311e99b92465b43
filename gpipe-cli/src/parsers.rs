//! Everything that reads bytes from outside, as functions from bytes to what came of them: for
//! fuzzers and tests, not a stable interface.
//!
//! Each gives what was understood, written out, or the line that the user would see.

use std::path::Path;

use clap::Parser as _;

use gpipe_checkpoint::Manifest;
use gpipe_data::{StreamDecoder, Vocabulary};
use gpipe_train::Overrides;

use crate::args::{Args, Settings};
use crate::commands::plan;
use crate::fail::{Fail, Result};

/// What was understood, or what the user is told.
pub type Answer = std::result::Result<String, String>;

/// A configuration file: all of what it means, as a file again.
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

/// A `--set` argument, which reaches every key.
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

/// A whole command line, without the program's name.
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

/// The list of `plan --costs`.
///
/// # Errors
/// The line that the user sees.
pub fn costs(text: &str) -> Answer {
    answer(plan::parse(text).map(|costs| {
        let costs: Vec<String> = costs.iter().map(u64::to_string).collect();
        costs.join(",")
    }))
}

/// The `manifest.json` of a checkpoint: its list of files, which is sealed with its digest here, so that
/// it is read beyond that. All of what it means, as a list again.
///
/// # Errors
/// The line that the user sees.
pub fn manifest(list: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let manifest = Manifest::parse(bytes).map_err(|fault| Fail::asked(fault.to_string()))?;
        let bytes = manifest.to_bytes().map_err(Fail::run)?;
        let list = Manifest::unsealed(&bytes).unwrap_or_default();
        Ok(String::from_utf8_lossy(list).into_owned())
    };
    // Without a seal it must be refused, and is only looked at here.
    answer(read(list)).or_else(|_| answer(read(&Manifest::seal(list))))
}

/// The `config.json` of a model: what is known of it.
///
/// # Errors
/// The line that the user sees.
pub fn model_config(bytes: &[u8]) -> Answer {
    let described = gpipe_hf::parse_config(bytes);
    answer(described.map_or_else(in_file("config.json"), |known| Ok(format!("{known:?}"))))
}

/// The `model.safetensors.index.json` of a model, as a file again.
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

/// A `tokenizer.json`: its tokens of a text, and what is said of them.
///
/// # Errors
/// The line that the user sees.
pub fn tokenizer(bytes: &[u8]) -> Answer {
    const TEXT: &str = "The pipe drains, 12 don't\n\n  \u{e9}e\u{301}\u{1f642} <|end|> the";
    let said = || {
        let vocabulary = Vocabulary::parse(bytes)?;
        let tokens = vocabulary.encode(TEXT.into(), 1, "the text")?;
        let mut decoder = StreamDecoder::new(&vocabulary);
        let mut said: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        said += &decoder.finish();
        Ok::<_, gpipe_data::Error>(format!("{} {tokens:?} {said:?}", vocabulary.size()))
    };
    answer(said().or_else(in_file("tokenizer.json")))
}

/// The error of a file as the user sees it.
fn in_file<T, E: std::fmt::Display>(file: &str) -> impl FnOnce(E) -> Result<T> + use<'_, T, E> {
    move |error| Err(Fail::asked(format!("{file}: {error}")))
}

fn answer(result: Result<String>) -> Answer {
    result.map_err(|fail| fail.line().unwrap_or_default())
}
