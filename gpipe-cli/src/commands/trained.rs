//! What `eval`, `predict` and `sample` begin with: a trained model and its workers.

use std::path::Path;

use gpipe_train::{ModelSource, Setup, TrainConfig};

use super::train::kernel_cache;
use crate::fail::Result;
use crate::output::Console;
use crate::ranks;

/// Finds a model, and warns of newer checkpoints that are damaged.
pub fn find(model: &Path, console: &Console) -> Result<ModelSource> {
    let source = gpipe_train::find(model)?;
    for warning in &source.warnings {
        console.warn(warning);
    }
    Ok(source)
}

/// The set-up of forward passes, which fit into the memory, with the weights open.
pub fn setup(config: &TrainConfig) -> Result<Setup> {
    let setup = Setup::forward_only_over(config, ranks::world().as_ref())?;
    let mut setup = setup.with_kernel_cache(kernel_cache().as_deref());
    setup.open_weights(config)?;
    setup.check_memory(config)?;
    Ok(setup)
}
