//! Where a model is, by the folder that a user names: a run, a checkpoint, or the model itself.

use std::fs;
use std::path::{Path, PathBuf};

use super::CONFIG;
use crate::fail::{Fail, Result};

/// The checkpoints in a run's folder.
const CHECKPOINTS: &str = "checkpoints";
/// The file beside them that names the last one.
const LATEST: &str = "latest";
/// The model in a checkpoint.
const MODEL: &str = "model";
/// The configuration of a run and of a checkpoint.
const RUN: &str = "config.toml";

/// A model, and the configuration of the run that made it, if there is one.
#[derive(Debug, PartialEq)]
pub struct Place {
    /// The folder with `config.json`.
    pub model: PathBuf,
    /// The `config.toml` of the run.
    pub run: Option<PathBuf>,
}

/// Finds the model in a run's folder (its latest checkpoint), in a checkpoint, or in a folder with
/// `config.json`.
pub fn find(folder: &Path) -> Result<Place> {
    let checkpoint = match fs::read_to_string(folder.join(CHECKPOINTS).join(LATEST)) {
        // A plain name: the pointer leads nowhere else.
        Ok(name) if Path::new(name.trim()).file_name() == Some(name.trim().as_ref()) => {
            folder.join(CHECKPOINTS).join(name.trim())
        }
        _ => folder.to_owned(),
    };
    if folder.join(CONFIG).is_file() {
        return Ok(Place {
            model: folder.to_owned(),
            run: None,
        });
    }
    let model = checkpoint.join(MODEL);
    if model.join(CONFIG).is_file() {
        let run = Some(checkpoint.join(RUN)).filter(|run| run.is_file());
        return Ok(Place { model, run });
    }
    Err(Fail::asked(format!(
        "{}: no model is there: name a run's folder, a checkpoint, or a folder with config.json",
        folder.display()
    )))
}
