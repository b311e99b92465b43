//! The defaults of a model: a preset, or a model in a folder.

use std::path::{Path, PathBuf};

use gpipe_data::{CLASSES, PIXELS};
use gpipe_hf::Description;
use gpipe_layers::models::{ModelConfig, Network};
use toml::{Table, Value};

use super::entry;
use super::keys::Keys;
use super::presets;
use crate::error::{Error, Result};
use crate::model_source;

/// A model's defaults and the description in its folder.
pub struct ModelDefaults {
    /// The configured name.
    name: String,
    /// Defaults of every key but `pipeline.threads`, which depends on the machine.
    pub defaults: Table,
    /// The configured folder and its contents; `None` for a preset.
    folder: Option<(PathBuf, Description)>,
}

impl ModelDefaults {
    /// The defaults of the given model. `saved_model`, the copy in a checkpoint, is read instead of the
    /// given folder, which may be gone.
    pub fn of(given: &Keys, saved_model: Option<&Path>) -> Result<Self> {
        let name = given.text("model", "name").unwrap_or(presets::NAMES[0]);
        if let Some(defaults) = presets::preset(name) {
            return Ok(Self {
                name: name.to_owned(),
                defaults,
                folder: None,
            });
        }
        let (folder, described) = match saved_model {
            Some(copy) => (PathBuf::from(name), gpipe_hf::read_config(copy)?),
            None => {
                let folder = find(name, given.has("lora", "adapter"))?;
                let described = gpipe_hf::read_config(&folder)?;
                (folder, described)
            }
        };
        let defaults = presets::of_folder(name, &described);
        Ok(Self {
            name: name.to_owned(),
            defaults: defaults.ok_or_else(|| unknown_family(name))?,
            folder: Some((folder, described)),
        })
    }

    /// The configured folder.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(|(folder, _)| folder.as_path())
    }

    /// Whether the model has a key of `[model]`.
    pub fn has(&self, key: &str) -> bool {
        has(&self.defaults, key)
    }

    /// Refuses keys that the model lacks, and sizes that differ from those in its folder.
    pub fn check(&self, given: &Keys) -> Result<()> {
        self.check_keys(given)?;
        match &self.folder {
            Some((_, described)) => self.check_described(described, given),
            None => Ok(()),
        }
    }

    fn check_keys(&self, given: &Keys) -> Result<()> {
        let keys = given.0.get("model").and_then(Value::as_table);
        let mut foreign = keys.into_iter().flat_map(Table::keys);
        for (key, what) in [
            ("image_size", "no size of images"),
            ("loss_target", "one loss"),
        ] {
            if given.has("data", key) && !self.has("network") {
                return Err(Error::invalid(format!(
                    "the model {} has {what}: leave `data.{key}` out",
                    self.name
                )));
            }
        }
        let Some(key) = foreign.find(|key| !self.has(key)) else {
            return Ok(());
        };
        let mend = match key.as_str() {
            // A folder is a trained model, which no preset stands for.
            "hidden" if self.folder.is_none() => format!(
                "leave it out, or use `model.name = {}`",
                presets::PERCEPTRON
            ),
            _ => {
                let keys = self.defaults.get("model").and_then(Value::as_table);
                let keys = keys.into_iter().flat_map(Table::keys);
                let keys = keys
                    .filter(|key| *key != "name")
                    .map(|key| format!("model.{key}"));
                let keys: Vec<String> = keys.collect();
                let (last, others) = keys
                    .split_last()
                    .map_or(("", &[][..]), |(last, others)| (last, others));
                format!(
                    "leave `model.{key}` out; its keys are {} and {last}",
                    others.join(", ")
                )
            }
        };
        Err(Error::invalid(format!(
            "the model {} has no model.{key}: {mend}",
            self.name
        )))
    }

    /// Checks the given keys against the sizes of a model in a folder: keys may repeat them, as the
    /// file of an earlier run does, but not change them.
    fn check_described(&self, described: &Description, given: &Keys) -> Result<()> {
        let name = &self.name;
        if !described.one_dropout && given.get("model", "dropout").is_none() {
            return Err(Error::invalid(format!(
                "{name}: embd_pdrop, attn_pdrop and resid_pdrop differ, but dropout has one value: choose it \
                 with `model.dropout = 0.1`"
            )));
        }
        if let ModelConfig::Mlp(mlp) = &described.model
            && (mlp.inputs, mlp.outputs) != (PIXELS, CLASSES)
        {
            let (key, only) = match mlp.inputs == PIXELS {
                true => ("num_labels", CLASSES),
                false => ("input_size", PIXELS),
            };
            return Err(Error::invalid(format!(
                "{name}: {key} is not {only}, as for the images of digits"
            )));
        }
        let of_folder = Keys(self.defaults.clone());
        let keys = given.0.get("model").and_then(Value::as_table);
        for (key, value) in keys.into_iter().flatten() {
            let known = of_folder.get("model", key);
            if key != "dropout" && known.is_some_and(|known| known != value) {
                let known = known.map_or_else(String::new, Value::to_string);
                return Err(Error::invalid(format!(
                    "model.{key} = {value} but {name} has {known}: leave model.{key} out"
                )));
            }
        }
        Ok(())
    }
}

fn has(defaults: &Table, key: &str) -> bool {
    defaults
        .get("model")
        .is_some_and(|keys| keys.get(key).is_some())
}

/// Finds the folder of a model that is not a preset. Adapters of it must be named, or left behind.
fn find(name: &str, names_adapter: bool) -> Result<PathBuf> {
    if !names_folder(name) {
        return Err(unknown_model(name));
    }
    let place = model_source::find(Path::new(name))?;
    if let Some(adapter) = place.adapter.filter(|_| !names_adapter) {
        let without = match adapter == place.model {
            true => format!("move {} out of the folder", gpipe_hf::ADAPTER_CONFIG),
            false => format!("`model.name = {}`", place.model.display()),
        };
        return Err(Error::invalid(format!(
            "`model.name = {name}`: has adapters: use `lora.adapter = {}` to go on with them, or {without}",
            adapter.display(),
        )));
    }
    match place.warnings.first() {
        Some(damage) => Err(Error::invalid(format!(
            "`model.name = {name}`: {damage}: name the checkpoint to use"
        ))),
        None => Ok(place.model),
    }
}

/// Whether a name refers to a folder or a GGUF file, which is then required to exist.
fn names_folder(name: &str) -> bool {
    let path = Path::new(name);
    let is_path = name.contains(['/', '\\']) || matches!(name, "." | "..");
    is_path || gpipe_hf::is_gguf(path) || path.is_dir()
}

fn unknown_model(name: &str) -> Error {
    let family = name.split(':').next().unwrap_or(name);
    if family.parse::<Network>().is_ok()
        && let Err(fault) = name.parse::<Network>()
    {
        return Error::invalid(fault);
    }
    let nearest = entry::nearest(name, presets::NAMES.into_iter());
    let meant = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    let names = presets::NAMES.join(", ");
    Error::invalid(format!(
        "unknown model `{name}`: use one of {names}, a folder with config.json, or a .gguf file{meant}"
    ))
}

fn unknown_family(name: &str) -> Error {
    Error::invalid(format!(
        "{name}: models of this family cannot be trained from a folder yet: use one of {}",
        presets::NAMES.join(", ")
    ))
}
