//! The model that a user names by a folder: of a run, of a checkpoint, or the model's own.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::machine;

/// A model, and the configuration of the run that made it, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSource {
    /// The folder with `config.json`.
    pub model: PathBuf,
    /// The `config.toml` of the run.
    pub run: Option<PathBuf>,
    /// Newer checkpoints that are not whole: a line each.
    pub warnings: Vec<String>,
}

/// Finds the model in a run's folder (its newest checkpoint that is whole), in a checkpoint, or in a
/// folder with `config.json`.
///
/// # Errors
/// If there is none, or no checkpoint is whole.
pub fn find(folder: &Path) -> Result<ModelSource> {
    if folder.join(gpipe_hf::CONFIG).is_file() {
        return Ok(ModelSource {
            model: folder.to_owned(),
            run: None,
            warnings: Vec::new(),
        });
    }
    if gpipe_checkpoint::locate(folder).is_err() {
        return Err(Error::invalid(format!(
            "{}: no model is there: name a run's folder, a checkpoint, or a folder with config.json",
            folder.display()
        )));
    }
    let memory = machine::memory().unwrap_or(u64::MAX);
    let (checkpoint, warnings) = gpipe_checkpoint::find(folder, memory)?;
    let folder = checkpoint.folder();
    Ok(ModelSource {
        model: folder.join(gpipe_checkpoint::MODEL),
        run: Some(folder.join(gpipe_checkpoint::CONFIG)),
        warnings,
    })
}
