//! What a checkpoint holds, as files.

use gpipe_layers::Optimizer;
use gpipe_remat::{ModelPipeline, Owned, put_states, put_values};
use gpipe_tensor::{Device, Tensor, safetensors};

use super::fs::Fs;
use super::read::Whole;
use super::{State, names};
use crate::config::Config;
use crate::fail::{Fail, Result};
use crate::model_folder::{self, Companions};

/// The weights below `model/`, by global names.
const WEIGHTS: &str = "model.safetensors";

/// A run between two steps, in buffers of its own.
pub struct Snapshot {
    /// The effective configuration.
    pub config: Config,
    /// Where the run is.
    pub state: State,
    /// Every parameter and what the optimizer remembers of it.
    pub owned: Vec<Owned>,
    /// Names what the optimizer remembers.
    pub optimizer: Optimizer,
    /// What lies beside the model and is kept as it was.
    pub companions: Companions,
}

impl Snapshot {
    /// The files of the checkpoint, by name.
    pub fn files(self) -> Result<Vec<(String, Vec<u8>)>> {
        let kinds = self.optimizer.state_names();
        let mut values = Vec::with_capacity(self.owned.len());
        let mut states = Vec::new();
        for Owned { name, value, state } in self.owned {
            let named = kinds.iter().map(|kind| format!("{name}.{kind}"));
            states.extend(named.zip(state));
            values.push((name, value));
        }
        let optimizer = safetensors::save(&states, &[]).map_err(Fail::run)?;
        drop(states);
        let state = serde_json::to_string_pretty(&self.state).map_err(Fail::run)? + "\n";
        let mut files = vec![
            (
                names::CONFIG.to_owned(),
                self.config.to_toml().map_err(Fail::Run)?.into_bytes(),
            ),
            (names::STATE.to_owned(), state.into_bytes()),
            (names::OPTIMIZER.to_owned(), optimizer),
        ];
        let model = model_folder::files(&self.config, &values, &self.companions)?;
        let below = |(name, bytes)| (format!("{}/{name}", names::MODEL), bytes);
        files.extend(model.into_iter().map(below));
        Ok(files)
    }
}

/// Where a run was when the checkpoint was made.
pub fn state<F: Fs>(fs: &F, whole: &Whole) -> Result<State> {
    let bytes = whole
        .read(fs, names::STATE)
        .map_err(|fault| unusable(whole, &fault))?;
    let state: State = serde_json::from_slice(&bytes)
        .map_err(|error| unusable(whole, &format!("{}: {error}", names::STATE)))?;
    if state.step != whole.manifest.step {
        let fault = format!("{} is of step {}", names::STATE, state.step);
        return Err(unusable(whole, &fault));
    }
    Ok(state)
}

/// Puts parameters and optimizer state into a pipeline of the same model; nothing is changed if they
/// do not fit.
pub fn restore<F: Fs>(
    fs: &F,
    whole: &Whole,
    pipeline: &mut ModelPipeline,
    device: &Device,
    optimizer: &Optimizer,
) -> Result<()> {
    let load = |name: &str| -> Result<Vec<(String, Tensor)>> {
        let bytes = whole
            .read(fs, name)
            .map_err(|fault| unusable(whole, &fault))?;
        safetensors::load(&bytes, device)
            .map_err(|error| unusable(whole, &format!("{name}: {error}")))
    };
    let unfit = |name: &str| {
        let name = name.to_owned();
        move |error: gpipe_remat::Error| match error {
            gpipe_remat::Error::Parameter { .. } => unusable(whole, &format!("{name}: {error}")),
            error => Fail::run(error),
        }
    };
    let weights = format!("{}/{WEIGHTS}", names::MODEL);
    let values = load(&weights)?;
    let owners: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
    put_values(pipeline, values).map_err(unfit(&weights))?;

    let mut stored: std::collections::HashMap<String, Tensor> =
        load(names::OPTIMIZER)?.into_iter().collect();
    let kinds = optimizer.state_names();
    let mut states = Vec::with_capacity(owners.len());
    for name in owners {
        let state = kinds
            .iter()
            .map_while(|kind| stored.remove(&format!("{name}.{kind}")));
        let state = state.collect();
        states.push((name, state));
    }
    if let Some(strange) = stored.into_keys().min() {
        let fault = format!("{}: `{strange}` belongs to no parameter", names::OPTIMIZER);
        return Err(unusable(whole, &fault));
    }
    put_states(pipeline, states).map_err(unfit(names::OPTIMIZER))
}

fn unusable(whole: &Whole, fault: &dyn std::fmt::Display) -> Fail {
    Fail::asked(format!("{}: {fault}", whole.folder.display()))
}
