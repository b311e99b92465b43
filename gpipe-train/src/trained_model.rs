//! A trained model with its adapters: configured for forward passes, and merged into one without adapters.

use std::path::Path;

use gpipe_data::{AUTO, Dataset, FoundVocabulary};
use gpipe_hf::Companions;
use gpipe_remat::{Assembled, copy_owned};
use gpipe_tensor::DeviceId;

use crate::config::{Overrides, Setting, TrainConfig, is_preset_name};
use crate::error::{Error, Result};
use crate::model_source::ModelSource;

impl ModelSource {
    /// The configuration of the run, if there is one, for forward passes of the model with its adapters and its
    /// tokenizer.
    ///
    /// # Errors
    /// Those of [`Overrides::file`].
    pub fn overrides(&self) -> Result<Overrides> {
        let overrides = match &self.run {
            Some(file) => Overrides::new().file(file)?.forward_only(),
            None => Overrides::new(),
        };
        let path = |path: &Path| path.to_string_lossy().into_owned();
        // A folder that is called like a preset is still the folder.
        let model = match path(&self.model) {
            name if is_preset_name(&name) => format!("./{name}"),
            name => name,
        };
        let mut settings = vec![
            Setting::new("model.name", model),
            // The checkpoint has the tokenizer of its run.
            Setting::new("data.tokenizer", AUTO),
        ];
        if let Some(adapter) = &self.adapter {
            settings.push(Setting::new("lora.adapter", path(adapter)));
        }
        overrides.layer(settings)
    }

    /// Resolves the configuration of these layers over [`overrides`](Self::overrides).
    ///
    /// # Errors
    /// [`Error::Invalid`] if a layer names a model without trained weights; those of [`Overrides::resolve`].
    pub fn resolve(&self, layers: Overrides) -> Result<TrainConfig> {
        match layers.model_name().filter(|name| is_preset_name(name)) {
            Some(name) => Err(Error::invalid(format!(
                "`model.name = {name}`: its weights are random, and {} is a trained model: leave `model.name` out",
                self.model.display()
            ))),
            None => layers.resolve(),
        }
    }

    /// A warning if the data of the run, which `config` evaluates the model on, is not what the run was trained on: the part
    /// that is held out has moved. `None` for other data than that of the run.
    pub fn changed_data(&self, config: &TrainConfig, dataset: &Dataset) -> Option<String> {
        let digest = self.data_digest.as_ref()?;
        // What decides on the digest.
        let read = |config: &TrainConfig| {
            let data = &config.data;
            (
                data.source.clone(),
                data.target.clone(),
                data.tokenizer.clone(),
                data.image_size.map(|size| size.get()),
            )
        };
        let of_run = self.overrides().ok()?.resolve().ok()?;
        if read(config) != read(&of_run) || *digest == dataset.digest() {
            return None;
        }
        let mend = match config.run.eval_every.get() {
            0 => "the loss is that of other samples than were trained on",
            _ => "another part of it is held out, and may have been trained on",
        };
        Some(format!(
            "`data.source`: {} is not what it was when the run was trained: {mend}",
            config.data.source
        ))
    }
}

/// Refuses to merge adapters that are not there, or into a folder that is.
///
/// # Errors
/// [`Error::Invalid`].
pub fn check_merge(config: &TrainConfig, folder: &Path) -> Result<()> {
    let shown = folder.display();
    if config.lora.settings().is_none() {
        return Err(Error::invalid(format!(
            "--save-merged {shown}: the model has no adapters: name some with `lora.adapter = FOLDER`"
        )));
    }
    match folder.symlink_metadata() {
        Ok(_) => Err(Error::invalid(format!(
            "--save-merged {shown}: is there: name a new folder"
        ))),
        Err(_) => Ok(()),
    }
}

/// Writes the model with its adapters merged into its weights to a new folder, as in a checkpoint's `model/`: it is
/// trained, evaluated and opened by `transformers` like any other, and computes the same to rounding.
///
/// # Errors
/// Those of [`check_merge`]; [`Error::Invalid`] if the folder cannot be made, [`Error::Run`] if it cannot be written.
pub fn save_merged(
    config: &TrainConfig,
    source: &ModelSource,
    vocabulary: &FoundVocabulary,
    assembled: &mut Assembled,
    folder: &Path,
) -> Result<()> {
    check_merge(config, folder)?;
    let Some(settings) = config.lora.settings() else {
        return Ok(());
    };
    let host = assembled.transit.host();
    let device = host.device(DeviceId::Cpu).map_err(Error::run)?;
    let params = copy_owned(&mut assembled.pipeline, &device).map_err(Error::run)?;
    if assembled
        .pipeline
        .world()
        .is_some_and(|world| world.rank() > 0)
    {
        return Ok(());
    }
    let values = params.into_iter().map(|param| (param.name, param.value));
    let model = config.model.config();
    let values = gpipe_hf::merged(&model, values.collect(), settings)?;
    let companions = Companions::read(Some(&source.model), vocabulary.file.as_deref())?;
    let files = gpipe_hf::to_files(&model, &values, &companions)?;
    gpipe_files::make_folder(folder).map_err(|error| {
        let shown = folder.display();
        Error::invalid(format!(
            "--save-merged {shown}: {error}: name a folder that can be made"
        ))
    })?;
    let written = files.into_iter().try_for_each(|(name, contents)| {
        gpipe_files::replace_with(&folder.join(name), |file| {
            contents.give(|bytes| file.write_all(bytes), std::io::Error::other)
        })
    });
    if written.is_err() {
        // This process has made it, and the same command is tried again.
        let _ = std::fs::remove_dir_all(folder);
    }
    written.map_err(Error::run)
}
