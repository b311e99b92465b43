//! From a checkpoint back into a pipeline.

use std::collections::HashMap;

use gpipe_layers::Optimizer;
use gpipe_remat::{LayerStage, put_states, put_values};
use gpipe_sched::{LossStage, Pipeline};
use gpipe_tensor::safetensors::{self, Stored};
use gpipe_tensor::{Device, Tensors};

use super::checkpoint::Checkpoint;
use super::error::{Error, Result};
use super::names;

impl Checkpoint {
    /// Puts parameters and optimizer state into a pipeline of the same model, under any cut, schedule
    /// and loss: training then goes on as if it had not been interrupted.
    ///
    /// `weights` are the names in the manifest of safetensors files with every parameter, such as
    /// `model/model.safetensors`, which may be there in [parts](crate::Manifest::parts), and `of_file` makes of each tensor of them, with its name there, what the parameter
    /// has, with its global name. A stage reads what it has, one tensor at a time; `device` counts that.
    ///
    /// # Errors
    /// [`Error::Unusable`] if a file changed since the checkpoint was found, or if names or shapes are
    /// not the model's; parameters are as before if the weights do not fit, and those of the
    /// checkpoint if the optimizer's state does not. [`Error::Pipeline`] if a worker failed.
    pub fn restore<T: LossStage<Tensors> + 'static>(
        &self,
        weights: &[&str],
        of_file: impl Fn(String, Stored) -> (String, Stored),
        pipeline: &mut Pipeline<LayerStage, T>,
        optimizer: &Optimizer,
        device: &Device,
    ) -> Result<()> {
        let open = |name: &str| -> Result<Vec<(String, Stored)>> {
            let parts = self.manifest().parts(name);
            let mut parts = parts.map_err(|fault| self.unusable(&fault))?;
            if parts.is_empty() {
                parts.push(name.to_owned());
            }
            let mut tensors = Vec::new();
            for part in parts {
                let stored = safetensors::stored(self.open(&part)?, device);
                tensors.extend(stored.map_err(|error| self.unusable(&format!("{part}: {error}")))?);
            }
            Ok(tensors)
        };
        let unfit = |name: &str, error: gpipe_remat::Error| match error {
            gpipe_remat::Error::Parameter { .. } => self.unusable(&format!("{name}: {error}")),
            error => Error::Pipeline(error),
        };
        if weights.is_empty() {
            return Err(self.unusable(&"no file of weights to restore from: name one or more"));
        }
        let mut values = Vec::new();
        for &weights in weights {
            let stored = open(weights)?.into_iter();
            values.extend(stored.map(|(name, value)| of_file(name, value)));
        }
        let owners: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
        put_values(pipeline, values).map_err(|error| unfit(&weights.join(", "), error))?;

        let mut stored: HashMap<String, Stored> = HashMap::new();
        for (name, state) in open(names::OPTIMIZER)? {
            if stored.contains_key(&name) {
                let fault = format!("{}: `{name}` is there twice", names::OPTIMIZER);
                return Err(self.unusable(&fault));
            }
            stored.insert(name, state);
        }
        let kinds = optimizer.state_names();
        let mut states = Vec::with_capacity(owners.len());
        for name in owners {
            let state = kinds
                .iter()
                .map_while(|kind| stored.remove(&format!("{name}.{kind}")));
            let state: Vec<Stored> = state.collect();
            states.push((name, state));
        }
        if let Some(strange) = stored.into_keys().min() {
            let fault = format!(
                "{}: `{strange}` is no state that this optimizer keeps of a parameter: use the optimizer and the \
                 model that it was saved with",
                names::OPTIMIZER
            );
            return Err(self.unusable(&fault));
        }
        put_states(pipeline, states).map_err(|error| unfit(names::OPTIMIZER, error))
    }
}
