//! From arguments to a configuration.

use gpipe_train::config::FixedKeys;
use gpipe_train::{Error, Overrides, Setting, TrainConfig};

use super::settings::Settings;
use crate::fail::{Fail, Result};
use crate::ranks;

impl Settings {
    /// Resolves the configuration: defaults of the model ◄ file ◄ environment ◄ `--set` ◄ flags.
    pub fn resolve(&self) -> Result<TrainConfig> {
        Ok(self.layers()?.resolve()?)
    }

    /// The keys that a recommendation keeps to: those of the file and of the flags.
    pub fn fixed(&self) -> Result<FixedKeys> {
        Ok(self.layers()?.fixed())
    }

    /// The layers of the file, the environment, and the command line.
    pub fn layers(&self) -> Result<Overrides> {
        self.lay_over(match &self.config {
            Some(path) => Overrides::new().file(path).map_err(unreadable)?,
            None => Overrides::new(),
        })
    }

    /// Adds the layers of the environment and the command line: flags stand before `--set` where both give a key, and
    /// neither takes the place of other keys of the same line.
    pub fn lay_over(&self, overrides: Overrides) -> Result<Overrides> {
        let overrides = ranks::lay(overrides).layer(environment())?;
        Ok(overrides.layer(self.typed()?)?)
    }

    /// The settings of the command line.
    pub fn typed(&self) -> Result<Vec<Setting>> {
        Ok(set(&self.set)?.into_iter().chain(self.flags()).collect())
    }
}

/// Names `--config` where its file cannot be read.
fn unreadable(error: Error) -> Fail {
    match &error {
        Error::Input(source) if source.is::<gpipe_files::Error>() => {
            Fail::invalid(format!("--config {source}"))
        }
        _ => error.into(),
    }
}

/// The environment variable that sets `run.instruction_set`.
const INSTRUCTION_SET: &str = "GPIPE_INSTRUCTION_SET";

/// The settings of the environment.
fn environment() -> Option<Setting> {
    let text = std::env::var_os(INSTRUCTION_SET).filter(|text| !text.is_empty())?;
    let text = text.to_string_lossy().into_owned();
    let place = format!("{INSTRUCTION_SET}={text}");
    Some(Setting::text(place, "run.instruction_set", text))
}

/// The settings of `--set`.
fn set(texts: &[String]) -> Result<Vec<Setting>> {
    let setting = |text: &String| {
        let place = format!("--set {text}");
        match text.split_once('=') {
            Some((key, value)) => Ok(Setting::text(place, key.trim(), value.trim())),
            None => Err(Fail::invalid(format!(
                "{place}: write --set SECTION.KEY=VALUE"
            ))),
        }
    };
    texts.iter().map(setting).collect()
}
