//! The settings that mean something beside the costs of layers.

use crate::config::Setting;
use crate::error::{Error, Result};

/// Keys of a plan by costs or of a recommendation, whose command has them all.
const KEYS: [&str; 13] = [
    "data.batch_size",
    "pipeline.devices",
    "pipeline.groups",
    "pipeline.memory",
    "pipeline.micro_batch_size",
    "pipeline.micro_batches",
    "pipeline.partition",
    "pipeline.remat",
    "pipeline.replicas",
    "pipeline.schedule",
    "pipeline.stages",
    "pipeline.zero",
    "run.dtype",
];

/// Refuses settings that nothing would read beside costs: those of a model, and a limit on memory unless plans are `searched`
/// within it. A file may be the whole configuration of a run, and is not checked.
///
/// # Errors
/// [`Error::Invalid`] for the first key of a model, its data or its training, and for `pipeline.memory`.
pub fn check_settings(settings: &[Setting], searched: bool) -> Result<()> {
    let mut keys = settings.iter().map(Setting::origin);
    if let Some((place, _)) = keys.find(|(_, key)| !searched && *key == "pipeline.memory") {
        return Err(Error::invalid(format!(
            "{place}: a plan of --costs predicts no memory, which --auto and --compare keep to: add one of them, or leave it out"
        )));
    }
    let mut origins = settings.iter().map(Setting::origin);
    match origins.find(|(_, key)| !KEYS.contains(key)) {
        None => Ok(()),
        Some((place, _)) => Err(Error::invalid(format!(
            "{place}: --costs stand in the place of a model, its data and its training: leave it out"
        ))),
    }
}
