//! Everything that reads bytes from outside, as functions from bytes to what came of them: for
//! fuzzers and tests, not a stable interface.
//!
//! Each gives what was understood, written out, or the line that the user would see.

use std::path::Path;

use clap::Parser as _;

use crate::args::{Args, Settings};
use crate::checkpoint::Manifest;
use crate::commands::plan;
use crate::config;
use crate::data::{Speaker, Tokenizer, Vocabulary};
use crate::fail::{Fail, Result};
use crate::model_folder;

/// What was understood, or what the user is told.
pub type Answer = std::result::Result<String, String>;

/// A configuration file: all of what it means, as a file again.
///
/// # Errors
/// The line that the user sees.
pub fn config(text: &[u8]) -> Answer {
    let resolve = || {
        let text = config::text(Path::new("file.toml"), text.to_vec())?;
        config::resolve_text(&text)?.to_toml().map_err(Fail::Run)
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
    answer(config::resolve(&settings).and_then(|config| config.to_toml().map_err(Fail::Run)))
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
        let manifest = Manifest::parse(bytes)
            .map_err(|fault| Fail::asked(format!("manifest.json {fault}")))?;
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
    let described = model_folder::parse_config(bytes);
    answer(described.map_or_else(told("config.json"), |known| Ok(format!("{known:?}"))))
}

/// The `model.safetensors.index.json` of a model, as a file again.
///
/// # Errors
/// The line that the user sees.
pub fn weights_index(bytes: &[u8]) -> Answer {
    let index = model_folder::parse_index(bytes);
    answer(
        index.map_or_else(told("model.safetensors.index.json"), |index| {
            Ok(serde_json::json!({ "weight_map": index.0 }).to_string())
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
        let tokenizer = Tokenizer::parse(bytes)?;
        let size = tokenizer.size();
        let vocabulary = Vocabulary::File(Box::new(tokenizer));
        let tokens = vocabulary.tokens(TEXT.into(), 1, "the text");
        let tokens = tokens.map_err(|fail| fail.line().unwrap_or_default())?;
        let mut speaker = Speaker::new(&vocabulary);
        let mut said: String = tokens.iter().map(|&token| speaker.say(token)).collect();
        said += &speaker.end();
        Ok(format!("{size} {tokens:?} {said:?}"))
    };
    answer(said().or_else(told("tokenizer.json")))
}

/// A fault of a file as the user sees it.
fn told<T>(file: &str) -> impl FnOnce(String) -> Result<T> + use<'_, T> {
    move |fault| Err(Fail::asked(format!("{file}: {fault}")))
}

fn answer(result: Result<String>) -> Answer {
    result.map_err(|fail| fail.line().unwrap_or_default())
}
