//! The launches of a training step on GPUs: on real ones with their times, or on paper.

use std::ops::ControlFlow;

use gpipe_tensor::{Device, LaunchTrace};

use crate::config::TrainConfig;
use crate::error::{BoxedError, Error, Result};
use crate::setup::Setup;
use crate::training_loop::{Recipe, train};
use crate::{dataset, vocabulary};

/// What the first step of a run asks of the device of each stage, in the order of stages: all launches from the batch to
/// the updated parameters. On paper no device is needed, nothing is computed and no time is measured.
///
/// # Errors
/// Those of [`Setup::new`] and [`Setup::assemble`]; [`Error::Step`] if a stage fails.
pub fn step_launches(config: &TrainConfig, on_paper: bool) -> Result<Vec<LaunchTrace>> {
    let vocabulary = vocabulary(config, None)?.vocabulary;
    let dataset = dataset(config, &vocabulary)?;
    let setup = Setup::new(config)?;
    let recipe = Recipe {
        config,
        dataset: &dataset,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let host = setup.host(config, true).map_err(Error::input)?;
    let host = match on_paper {
        true => host.on_paper(),
        false => host.with_traced_launches(),
    };
    let mut run = setup.assemble_on(host, config)?;
    let taken = |devices: &[Device]| {
        let taken = devices.iter().map(Device::take_launches);
        let taken = taken.map(|trace| Ok(trace.map_err(Error::run)?.unwrap_or_default()));
        taken.collect::<Result<Vec<LaunchTrace>>>()
    };
    // Without those that make the parameters.
    taken(&run.devices)?;
    let end = |_: &mut _, _: &_, _| Ok::<_, BoxedError>(ControlFlow::Break(()));
    train(&recipe, &mut run, 0..1, end).map_err(Error::run)?;
    taken(&run.devices)
}
