//! Where a model comes from: one of those by name, or a folder that describes it.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::keys::Keys;
use super::{entry, presets};
use crate::fail::{Fail, Result};
use crate::model_folder::{self, Architecture, Description};

/// Where a model comes from, and what is known of it there.
pub struct Origin {
    /// As it was typed.
    name: String,
    /// Of every key but `pipeline.threads`, which depends on the machine.
    pub defaults: Table,
    /// The folder that the configuration names, and what stands in it; none of a model by name.
    folder: Option<(PathBuf, Description)>,
}

impl Origin {
    /// The origin of the model that was typed. A checkpoint keeps what described its model: that is
    /// the `stand_in` for the folder that was typed, which may be gone.
    pub fn of(typed: &Keys, stand_in: Option<&Path>) -> Result<Self> {
        let name = typed.text("model", "name").unwrap_or(presets::NAMES[0]);
        if let Some(defaults) = presets::preset(name) {
            return Ok(Self {
                name: name.to_owned(),
                defaults,
                folder: None,
            });
        }
        let (folder, described) = match stand_in {
            Some(copy) => (PathBuf::from(name), model_folder::describe(copy)?),
            None => {
                let folder = find(name)?;
                let described = model_folder::describe(&folder)?;
                (folder, described)
            }
        };
        Ok(Self {
            name: name.to_owned(),
            defaults: presets::of_folder(name, &described.model),
            folder: Some((folder, described)),
        })
    }

    /// The folder that the configuration names.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(|(folder, _)| folder.as_path())
    }

    /// Whether images are classified, not text continued.
    pub fn classifies(&self) -> bool {
        match &self.folder {
            Some((_, described)) => matches!(described.model, Architecture::Perceptron { .. }),
            None => self.name == presets::PERCEPTRON,
        }
    }

    /// Refuses keys that the model does not have, and sizes that it has otherwise.
    pub fn check(&self, typed: &Keys) -> Result<()> {
        check_keys(&self.name, self.classifies(), typed)?;
        match &self.folder {
            Some((_, described)) => check_described(&self.name, described, typed),
            None => Ok(()),
        }
    }
}

/// The folder of the model that is meant by a name that no other model has.
fn find(name: &str) -> Result<PathBuf> {
    if !names_folder(name) {
        return Err(unknown_model(name));
    }
    let place = model_folder::find(Path::new(name))?;
    match place.warnings.first() {
        Some(damage) => Err(Fail::asked(format!(
            "--model {name}: {damage}: name the checkpoint that is meant"
        ))),
        None => Ok(place.model),
    }
}

/// Refuses keys that the model does not have.
fn check_keys(name: &str, classifies: bool, typed: &Keys) -> Result<()> {
    let keys = typed.0.get("model").and_then(Value::as_table);
    let foreign = presets::foreign(classifies);
    let Some(key) = keys
        .into_iter()
        .flat_map(Table::keys)
        .find(|key| foreign(key))
    else {
        return Ok(());
    };
    let mend = match key.as_str() {
        "hidden" => format!("leave it out, or use --model {}", presets::PERCEPTRON),
        _ => "its keys are model.hidden and model.dropout".to_owned(),
    };
    Err(Fail::asked(format!(
        "the model {name} has no model.{key}: {mend}"
    )))
}

/// Whether a model is meant that is in a folder: then it is an error if the folder is not there.
fn names_folder(name: &str) -> bool {
    name.contains(['/', '\\']) || matches!(name, "." | "..") || Path::new(name).is_dir()
}

/// A model in a folder has the sizes that it has: keys may repeat them, as the file of an earlier
/// run does, but not change them.
fn check_described(name: &str, described: &Description, typed: &Keys) -> Result<()> {
    if !described.one_dropout && typed.get("model", "dropout").is_none() {
        return Err(Fail::asked(format!(
            "{name}: embd_pdrop, attn_pdrop and resid_pdrop differ, but dropout has one value: choose it with --dropout"
        )));
    }
    let of_folder = Keys(presets::of_folder(name, &described.model));
    for (key, value) in typed
        .0
        .get("model")
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
    {
        let known = of_folder.get("model", key);
        if key != "dropout" && known.is_some_and(|known| known != value) {
            let known = known.map_or_else(String::new, Value::to_string);
            return Err(Fail::asked(format!(
                "model.{key} = {value} but {name} has {known}: leave model.{key} out"
            )));
        }
    }
    Ok(())
}

fn unknown_model(name: &str) -> Fail {
    let nearest = entry::nearest(name, presets::NAMES.into_iter());
    let names = presets::NAMES.join(", ");
    Fail::asked(format!(
        "unknown model `{name}`: use one of {names}, or a folder with config.json; did you mean `{nearest}`?"
    ))
}
