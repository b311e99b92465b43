//! Where a model is, by the folder that a user names: a run, a checkpoint, or the model itself.

use std::path::{Path, PathBuf};

use super::CONFIG;
use crate::checkpoint;
use crate::fail::{Fail, Result};

/// A model, and the configuration of the run that made it, if there is one.
#[derive(Debug, PartialEq)]
pub struct Place {
    /// The folder with `config.json`.
    pub model: PathBuf,
    /// The `config.toml` of the run.
    pub run: Option<PathBuf>,
    /// Newer checkpoints that are not whole: a line each.
    pub warnings: Vec<String>,
}

/// Finds the model in a run's folder (its newest checkpoint that is whole), in a checkpoint, or in a
/// folder with `config.json`.
pub fn find(folder: &Path) -> Result<Place> {
    if folder.join(CONFIG).is_file() {
        return Ok(Place {
            model: folder.to_owned(),
            run: None,
            warnings: Vec::new(),
        });
    }
    if let Some((checkpoint, warnings)) = checkpoint::whole_in(folder)? {
        return Ok(Place {
            model: checkpoint.join(checkpoint::MODEL),
            run: Some(checkpoint.join(checkpoint::CONFIG)),
            warnings,
        });
    }
    Err(Fail::asked(format!(
        "{}: no model is there: name a run's folder, a checkpoint, or a folder with config.json",
        folder.display()
    )))
}
