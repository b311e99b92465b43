//! Everything that reads bytes from outside, as functions from bytes to what came of them: for
//! fuzzers and tests, not a stable interface.
//!
//! Each gives what was understood, written out, or the line that the user would see.

use std::path::Path;

use clap::Parser as _;

use crate::args::{Args, Settings};
use crate::commands::plan;
use crate::config;
use crate::fail::{Fail, Result};

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

fn answer(result: Result<String>) -> Answer {
    result.map_err(|fail| fail.line().unwrap_or_default())
}
