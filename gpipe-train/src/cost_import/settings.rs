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

/// Refuses settings that nothing would read beside costs. A file may be the whole configuration of a run, and is not checked.
///
/// # Errors
/// [`Error::Invalid`] for the first key of a model, its data or its training.
pub fn check_settings(settings: &[Setting]) -> Result<()> {
    let mut origins = settings.iter().map(Setting::origin);
    match origins.find(|(_, key)| !KEYS.contains(key)) {
        None => Ok(()),
        Some((place, _)) => Err(Error::invalid(format!(
            "{place}: --costs stand in the place of a model, its data and its training: leave it out"
        ))),
    }
}
