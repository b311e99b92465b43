//! From what was typed to what it means.

use std::path::Path;

use serde::Deserialize;

use super::defaults::Draft;
use super::keys::Keys;
use super::{Config, entry, sense};
use crate::args::Settings;
use crate::fail::{Fail, Result};

/// The whole configuration: defaults of the model ◄ file ◄ `--set` ◄ flags.
pub fn resolve(settings: &Settings) -> Result<Config> {
    let schema = entry::Schema::new();
    let mut typed = Keys::default();
    if let Some(path) = &settings.config {
        typed.lay(entry::of_file(&schema, path, &entry::read_file(path)?)?)?;
    }
    let of_file = typed.text("model", "name").map(str::to_owned);
    typed.lay(entry::of_set(&schema, settings)?)?;
    typed.lay(entry::of_flags(&schema, settings)?)?;
    let same = typed.text("model", "name") == of_file.as_deref();
    complete(typed, settings.stand_in.as_deref().filter(|_| same))
}

/// The whole configuration that a file with this text stands for.
pub fn resolve_text(text: &str) -> Result<Config> {
    let mut typed = Keys::default();
    let name = Path::new("file.toml");
    typed.lay(entry::of_file(&entry::Schema::new(), name, text)?)?;
    complete(typed, None)
}

/// Gives every key that was not typed its default, and refuses what makes no sense together.
fn complete(typed: Keys, stand_in: Option<&Path>) -> Result<Config> {
    let mut draft = Draft::new(typed, stand_in)?;
    draft.follow_table();
    draft.cut_batch();
    draft.fit_model_to_data()?;
    draft.use_all_cores();
    draft.place_stages()?;
    let config = Config::deserialize(draft.keys.0).map_err(|error| Fail::asked(error.message()))?;
    sense::check(&config)?;
    if let Some(table) = &draft.table {
        sense::check_table(&config, table)?;
    }
    Ok(config)
}
