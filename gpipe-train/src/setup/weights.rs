//! The weights of a model from files, as a set-up opens them.

use gpipe_hf::{Weights, is_adapter};
use gpipe_layers::{Init, Layer};
use gpipe_tensor::Shape;

use super::Setup;
use crate::config::TrainConfig;
use crate::error::Result;
use crate::launch::check_same_weights;

impl Setup {
    /// Opens the weights of a model, from a folder or a file, and of its adapters, and checks their names and shapes; no
    /// effect for a preset without adapters from a folder. Every rank of a world calls it.
    ///
    /// # Errors
    /// [`Error::Input`](crate::Error::Input) if the weights cannot be read or do not fit the model;
    /// [`Error::Invalid`](crate::Error::Invalid) if another rank has others.
    pub fn open_weights(&mut self, config: &TrainConfig) -> Result<()> {
        let [weights, adapters] = self.find_weights(config)?;
        for layer in &mut self.layers {
            layer.params(&mut |param| {
                let opened = match is_adapter(&param.name) {
                    true => &adapters,
                    false => &weights,
                };
                let replaced = |opened: &Weights| param.tied || opened.has(&param.name);
                if opened.as_ref().is_some_and(replaced) {
                    // A cheap initial value.
                    param.init = Init::Zeros;
                }
            });
        }
        let head = self.head();
        if let (Some(weights), Some(file)) = (&weights, config.model.weights())
            && head.iter().any(|name| !weights.has(name))
        {
            self.warning = Some(format!(
                "`model.weights = {}`: its last layer has another number of classes, and {} begin anew",
                file.display(),
                head.join(" and "),
            ));
        }
        self.weights = weights.into_iter().chain(adapters).collect();
        if let Some(world) = &self.world {
            let digests: gpipe_hf::Result<String> =
                self.weights.iter().map(Weights::sampled_digest).collect();
            check_same_weights(world, digests?)?;
        }
        Ok(())
    }

    /// Opens the files with the weights of the model and of its adapters, where there are any.
    pub(super) fn find_weights(&mut self, config: &TrainConfig) -> Result<[Option<Weights>; 2]> {
        let (of_adapters, of_model): (Vec<_>, Vec<_>) =
            (self.owners().into_iter()).partition(|(name, _)| is_adapter(name));
        let weights = match (config.model.folder(), config.model.weights()) {
            (Some(folder), _) => Some(Weights::open(folder, &of_model)?),
            (None, Some(file)) => Some(Weights::open_file(file, &of_model, &self.head())?),
            (None, None) => None,
        };
        let adapters = match config.lora.folder() {
            Some(folder) => Some(Weights::open_adapter(folder, &of_adapters)?),
            None => None,
        };
        Ok([weights, adapters])
    }

    /// The parameters of the last layer that has any: of a network for images, the classifier.
    fn head(&mut self) -> Vec<String> {
        let names = |layer: &mut Box<dyn Layer>| {
            let mut names = Vec::new();
            layer.params(&mut |param| names.push(param.name.clone()));
            names
        };
        let mut layers = self.layers.iter_mut().rev().map(names);
        layers.find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// Names and shapes of the parameters; tied ones once.
    pub(super) fn owners(&mut self) -> Vec<(String, Shape)> {
        let mut owners = Vec::new();
        for layer in &mut self.layers {
            layer.params(&mut |param| {
                if !param.tied {
                    owners.push((param.name.clone(), param.shape.clone()));
                }
            });
        }
        owners
    }
}
