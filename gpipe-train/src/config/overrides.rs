//! From what was given to what it means.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use super::defaults::Draft;
use super::entry::{self, Schema};
use super::keys::{Entry, Keys};
use super::{TrainConfig, validate};
use crate::error::{Error, Result};

/// A value for one key, and where it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// What an error points to, such as `--stages 0`.
    place: String,
    /// Such as `pipeline.stages`.
    key: String,
    value: Given,
}

#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// As a person typed it: read by the kind of value that the key has.
    Text(String),
    /// With a type.
    Typed(Value),
}

impl Setting {
    /// A typed value of a key such as `pipeline.stages`.
    pub fn new(key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        Self {
            place: format!("{key} = {value}"),
            key,
            value: Given::Typed(value),
        }
    }

    /// A value as a person typed it, at a place that an error points to.
    pub fn text(place: impl Into<String>, key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            key: key.into(),
            value: Given::Text(text.into()),
        }
    }

    fn entry(self, schema: &Schema) -> Result<Entry> {
        match self.value {
            Given::Text(text) => entry::of_text(schema, self.place, &self.key, &text),
            Given::Typed(value) => entry::of_typed(schema, self.place, &self.key, value),
        }
    }
}

/// Values over the defaults of a model, layer by layer; later layers win.
///
/// ```
/// use gpipe_train::{Overrides, Setting};
///
/// # fn main() -> gpipe_train::Result<()> {
/// let config = Overrides::new()
///     .layer([
///         Setting::new("model.name", "gpt-nano"),
///         Setting::new("pipeline.stages", 2),
///     ])?
///     .resolve()?;
/// assert_eq!(config.pipeline.stages.get(), 2);
/// assert_eq!(config.data.batch_size.get(), 16);
/// # Ok(())
/// # }
/// ```
pub struct Overrides {
    schema: Schema,
    given: Keys,
    /// A model that a checkpoint keeps, and the name of the one that it stands for.
    saved_model: Option<(PathBuf, Option<String>)>,
}

impl Default for Overrides {
    fn default() -> Self {
        Self::new()
    }
}

impl Overrides {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self {
            schema: Schema::new(),
            given: Keys::default(),
            saved_model: None,
        }
    }

    /// A TOML file as the next layer, such as the `config.toml` of an earlier run.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line of the first key that is wrong, or why the file cannot be read.
    pub fn file(self, path: &Path) -> Result<Self> {
        let text = entry::read_file(path)?;
        self.file_text(path, &text)
    }

    /// The bytes of a file as the next layer; `path` names it in errors.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn file_bytes(self, path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let text = entry::text(path, bytes)?;
        self.file_text(path, &text)
    }

    fn file_text(mut self, path: &Path, text: &str) -> Result<Self> {
        let entries = entry::of_file(&self.schema, path, text)?;
        self.given.lay(entries)?;
        Ok(self)
    }

    /// Settings that were given together as the next layer.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first key that does not exist, value that it cannot have, or pair of
    /// keys that say the same in two ways.
    pub fn layer(mut self, settings: impl IntoIterator<Item = Setting>) -> Result<Self> {
        let entries = settings.into_iter().map(|one| one.entry(&self.schema));
        let entries = entries.collect::<Result<Vec<_>>>()?;
        self.given.lay(entries)?;
        Ok(self)
    }

    /// The folder in which a checkpoint keeps the model of the configuration given so far: it stands for
    /// the folder that its run began with, which may be gone, unless a later layer names another model.
    #[must_use]
    pub fn saved_model(mut self, folder: &Path) -> Self {
        let name = self.given.text("model", "name").map(str::to_owned);
        self.saved_model = Some((folder.to_owned(), name));
        self
    }

    /// The whole configuration: every key that was not given has its default.
    ///
    /// # Errors
    /// [`Error::Invalid`] for keys that exclude each other, and for a model or a tokenizer that is not
    /// there.
    pub fn resolve(self) -> Result<TrainConfig> {
        let name = self.given.text("model", "name").map(str::to_owned);
        let saved_model = self.saved_model.filter(|(_, of)| *of == name);
        let mut draft = Draft::new(self.given, saved_model.as_ref().map(|(at, _)| at.as_path()))?;
        draft.follow_table();
        draft.cut_batch();
        draft.fit_model_to_data()?;
        draft.use_all_cores();
        draft.place_stages()?;
        let config = TrainConfig::deserialize(draft.keys.0)
            .map_err(|error| Error::invalid(error.message()))?;
        validate::check(&config)?;
        if let Some(table) = &draft.table {
            validate::check_table(&config, table)?;
        }
        Ok(config)
    }
}
