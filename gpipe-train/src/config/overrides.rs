//! Layers of settings, resolved to a complete configuration.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use super::defaults::Draft;
use super::entry::{self, Schema};
use super::keys::{Entry, Keys};
use super::schedule::ScheduleChoice;
use super::{TrainConfig, validate};
use crate::error::{Error, Result};

/// A value for one key, with its origin for error messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The origin, such as `--stages 0`.
    place: String,
    /// The full key, such as `pipeline.stages`.
    key: String,
    value: Given,
}

#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// Text, parsed by the type of the key.
    Text(String),
    /// A typed value.
    Typed(Value),
}

impl Setting {
    /// A typed value of a key such as `pipeline.stages`.
    pub fn new(key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        Self {
            place: format!("{key} = {value}"),
            key,
            value: Given::Typed(value),
        }
    }

    /// A value as text, as typed by a user; error messages begin with `place`.
    pub fn text(place: impl Into<String>, key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            key: key.into(),
            value: Given::Text(text.into()),
        }
    }

    /// The origin for messages, and the full key.
    pub(crate) fn origin(&self) -> (&str, &str) {
        (&self.place, &self.key)
    }

    fn entry(self, schema: &Schema) -> Result<Entry> {
        match self.value {
            Given::Text(text) => entry::of_text(schema, self.place, &self.key, &text),
            Given::Typed(value) => entry::of_typed(schema, self.place, &self.key, value),
        }
    }
}

/// A builder of [`TrainConfig`]: layers of settings over the defaults of a model; later layers win.
///
/// ```
/// use gpipe_train::{Overrides, Setting};
///
/// # fn main() -> gpipe_train::Result<()> {
/// let config = Overrides::new()
///     .layer([
///         Setting::new("model.name", "gpt-nano"),
///         Setting::new("pipeline.stages", 2),
///     ])?
///     .resolve()?;
/// assert_eq!(config.pipeline.stages.get(), 2);
/// assert_eq!(config.data.batch_size.get(), 16);
/// # Ok(())
/// # }
/// ```
pub struct Overrides {
    schema: Schema,
    given: Keys,
    /// Whether the run makes forward passes alone.
    is_forward: bool,
    /// Whether its stages are those of the training run, and not of a later layer.
    has_stages_of_run: bool,
    /// The most micro-batches of such a run.
    most_micro_batches: Option<i64>,
    /// What such a run asks of GPUs, if it has one, unless a later layer asks otherwise.
    of_gpus: Vec<(&'static str, Value)>,
    /// The ranks of the run, and those on this host.
    ranks: [usize; 2],
    /// Of a plan for costs: the samples that they are of, where that is known.
    costs: Option<Option<usize>>,
    /// The model in a checkpoint, and the configured name of the model that it replaces.
    saved_model: Option<(PathBuf, Option<String>)>,
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides")
            .field("given", &self.given.0)
            .finish_non_exhaustive()
    }
}

impl Default for Overrides {
    fn default() -> Self {
        Self::new()
    }
}

impl Overrides {
    /// An empty builder, which resolves to the defaults.
    pub fn new() -> Self {
        Self {
            schema: Schema::new(),
            given: Keys::default(),
            is_forward: false,
            has_stages_of_run: false,
            most_micro_batches: None,
            of_gpus: Vec::new(),
            ranks: [1, 1],
            costs: None,
            saved_model: None,
        }
    }

    /// Adds a TOML file as the next layer, such as the `config.toml` of an earlier run.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line of the first invalid key, or why the file cannot be read.
    pub fn file(self, path: &Path) -> Result<Self> {
        let text = entry::read_file(path)?;
        self.file_text(path, &text)
    }

    /// Adds the bytes of a TOML file as the next layer; `path` names it in errors.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn file_bytes(self, path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let text = entry::text(path, bytes)?;
        self.file_text(path, &text)
    }

    fn file_text(mut self, path: &Path, text: &str) -> Result<Self> {
        let entries = entry::of_file(&self.schema, path, text)?;
        self.given.merge(entries)?;
        Ok(self)
    }

    /// Adds settings as the next layer.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first unknown key or invalid value, and for
    /// `pipeline.micro_batches` and `pipeline.micro_batch_size` in one layer.
    pub fn layer(mut self, settings: impl IntoIterator<Item = Setting>) -> Result<Self> {
        let entries = settings.into_iter().map(|one| one.entry(&self.schema));
        let entries = entries.collect::<Result<Vec<_>>>()?;
        let lays_stages = |entry: &Entry| {
            entry.section == "pipeline" && matches!(&*entry.key, "stages" | "devices")
        };
        // Forward passes have no need of the run's schedule and cut, which may not fit other stages.
        if self.is_forward && entries.iter().any(lays_stages) {
            self.given.remove("pipeline", "schedule");
            self.given.remove("pipeline", "partition");
            self.has_stages_of_run = false;
        }
        self.given.merge(entries)?;
        Ok(self)
    }

    /// Reads the model of the layers so far from the folder of a checkpoint, since the folder that the
    /// run began with may be gone. A later layer that names another model cancels this.
    #[must_use]
    pub fn saved_model(mut self, folder: &Path) -> Self {
        let name = self.given.text("model", "name").map(str::to_owned);
        // Where the adapters began; the checkpoint has them.
        self.given.remove("lora", "adapter");
        self.saved_model = Some((folder.to_owned(), name));
        self
    }

    /// Adapts the layers so far, those of a training run, to forward passes alone: a number of
    /// micro-batches becomes the most, and a table of actions, which is of another number of them, is
    /// left out, as are the rule `histogram`, groups, replicas, layers before the pipeline, what is kept for backward passes in
    /// which memory, and on processors what was asked of GPUs. A later layer with other stages leaves out any schedule and
    /// cut, as do ranks that cannot share the stages of the run: there is a stage for each worker then.
    #[must_use]
    pub fn forward_only(mut self) -> Self {
        let name = self.given.text("pipeline", "schedule");
        if name.is_some_and(ScheduleChoice::is_table) {
            self.given.remove("pipeline", "schedule");
            if let Some(devices) = self.given.devices()
                && devices.repeated().is_none()
            {
                self.given.remove("pipeline", "stages");
            }
        }
        // By the costs of forward passes Lingvo's rule may leave a stage without layers.
        if self.given.text("pipeline", "partition") == Some("histogram") {
            self.given.remove("pipeline", "partition");
        }
        // There are no gradients to sum, and a layer takes a micro-batch as it takes more.
        for key in ["groups", "replicas", "zero", "before", "remat", "memory"] {
            self.given.remove("pipeline", key);
        }
        for key in ["tf32", "nccl"] {
            let given = self.given.remove("run", key);
            self.of_gpus.extend(given.map(|given| (key, given)));
        }
        self.is_forward = true;
        self.has_stages_of_run = true;
        let given = self.given.remove("pipeline", "micro_batches");
        self.most_micro_batches = given.and_then(|given| given.as_integer());
        self
    }

    /// Whether an evaluation, or the generation of text, reads a key such as `run.seed`; the others are of training, or of the
    /// model.
    pub fn is_read_by_forward_passes(key: &str, evaluates: bool) -> bool {
        match key.split_once('.') {
            Some(("pipeline", "before" | "groups" | "remat" | "zero")) => false,
            Some(("run", "cuda_graphs" | "keep" | "save_every" | "steps" | "trace_steps")) => false,
            Some(("pipeline", key)) => evaluates || !key.starts_with("micro_batch"),
            Some(("data", _)) => evaluates,
            Some(("run", _)) => true,
            _ => false,
        }
    }

    /// For one of `ranks` processes, `here` of them on this host: every rank lists its own workers, and the
    /// cores of the host are divided.
    #[must_use]
    pub fn on_ranks(self, ranks: usize, here: usize) -> Self {
        Self {
            ranks: [ranks, here],
            ..self
        }
    }

    /// For a plan by costs of layers: of a step of `batch` samples, or of as many as it has micro-batches where that is not
    /// known.
    #[must_use]
    pub fn of_costs(self, batch: Option<usize>) -> Self {
        Self {
            costs: Some(batch),
            ..self
        }
    }

    /// The model that the layers so far name.
    pub(crate) fn model_name(&self) -> Option<&str> {
        self.given.text("model", "name")
    }

    /// The keys of the layers so far.
    pub(crate) fn given(&self) -> &Keys {
        &self.given
    }

    /// Resolves the complete configuration: every key that was not given has its default.
    ///
    /// # Errors
    /// [`Error::Invalid`] for values that exclude each other and for an unknown model;
    /// [`Error::Input`] for a model or a tokenizer that cannot be read.
    pub fn resolve(mut self) -> Result<TrainConfig> {
        let (most_micro_batches, [ranks, ranks_here]) = (self.most_micro_batches, self.ranks);
        let (of_gpus, costs) = (std::mem::take(&mut self.of_gpus), self.costs);
        let of_checkpoint = self.saved_model.is_some();
        if self.has_stages_of_run {
            self.fit_stages_to_ranks();
        }
        let mut draft = self.draft()?;
        draft.read_adapter()?;
        draft.follow_table()?;
        if let Some(batch) = costs {
            draft.follow_costs(batch)?;
        }
        draft.cut_batch(most_micro_batches);
        draft.fit_model_to_data()?;
        draft.use_all_cores(ranks_here);
        draft.place_stages(ranks)?;
        draft.ask_gpus(of_gpus);
        let mut config = complete(draft.keys)?;
        config.pipeline.listed = draft.listed;
        config.lora.complete(&config.model)?;
        if let Some(table) = &draft.table {
            validate::check_table(&config, table)?;
        }
        let batch_of_costs = costs.flatten().is_some();
        validate::check(
            &config,
            [draft.table.is_some(), batch_of_costs, of_checkpoint],
        )?;
        Ok(config)
    }

    /// Replaces the stages of a run by one for each worker, where the ranks cannot share them: a run of replicas has fewer
    /// stages than ranks.
    fn fit_stages_to_ranks(&mut self) {
        let schedule = self.given.text("pipeline", "schedule");
        let schedule = schedule.and_then(|name| name.parse::<ScheduleChoice>().ok());
        let chunks = schedule.map_or(1, |schedule| schedule.chunks() as u64);
        let number = |key| {
            let given = self.given.number("pipeline", key);
            given.and_then(|given| u64::try_from(given).ok())
        };
        let stages = number("stages").unwrap_or(1);
        let ranks = (self.ranks[0] as u64 / number("replicas").unwrap_or(1).max(1)).max(1);
        let listed = self.given.devices();
        let listed = listed.filter(|devices| devices.repeated().is_none());
        let fits = match &listed {
            Some(devices) => stages == devices.workers().saturating_mul(ranks * chunks),
            None => stages.is_multiple_of(ranks * chunks),
        };
        if !fits {
            for key in ["stages", "schedule", "partition"] {
                self.given.remove("pipeline", key);
            }
            // Listed workers have one each.
            if listed.is_none() {
                self.given.set("pipeline", "stages", ranks as i64);
            }
        }
    }

    /// The configuration of a run, whose file has all keys that depend on others: what the run read beside its model, such as
    /// data and a table of actions, may be gone.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), for an unknown model and one that cannot be read.
    pub(crate) fn of_run(self) -> Result<TrainConfig> {
        complete(self.draft()?.keys)
    }

    /// The layers over the defaults of their model.
    fn draft(self) -> Result<Draft> {
        let name = self.given.text("model", "name").map(str::to_owned);
        let saved_model = self.saved_model.filter(|(_, of)| *of == name);
        Draft::new(self.given, saved_model.as_ref().map(|(at, _)| at.as_path()))
    }
}

/// A configuration of all keys.
fn complete(keys: Keys) -> Result<TrainConfig> {
    TrainConfig::deserialize(keys.0).map_err(|error| Error::invalid(error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that cannot share the stages of a run, of replicas for example, have one for each worker.
    #[test]
    fn forward_passes_have_stages_for_all_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        let layer = |set: &[&str]| {
            let setting = |text: &&str| {
                let (key, value) = text.split_once('=').unwrap();
                Setting::text(*text, key, value)
            };
            set.iter().map(setting).collect::<Vec<_>>()
        };
        let forward = |run: &[&str], ranks: usize, set: &[&str]| {
            let run = Overrides::new().layer(layer(run));
            let run = run.unwrap().on_ranks(2, 2).resolve().unwrap();
            std::fs::write(&file, run.to_toml().unwrap()).unwrap();
            let overrides = Overrides::new().file(&file).unwrap().forward_only();
            let overrides = overrides.layer(layer(set));
            let config = overrides.unwrap().on_ranks(ranks, ranks).resolve().unwrap();
            config.pipeline.stages.get()
        };
        let replicas = ["pipeline.replicas=2", "pipeline.stages=1"];
        let stages = |ranks| forward(&replicas, ranks, &[]);
        assert_eq!([1, 2, 4].map(stages), [1, 2, 4]);
        assert_eq!(forward(&replicas, 2, &["pipeline.replicas=2"]), 1);
        // Those that fit, and those that are typed, stay.
        let chunks = ["pipeline.schedule=interleaved:2", "pipeline.stages=4"];
        assert_eq!(forward(&chunks, 2, &[]), 4);
        assert_eq!(forward(&chunks, 4, &[]), 4);
        assert_eq!(forward(&replicas, 2, &["pipeline.stages=4"]), 4);
        let cut = ["pipeline.stages=2", "pipeline.partition=3,8"];
        assert_eq!(forward(&cut, 3, &[]), 3);
        // Listed workers are those of each rank.
        let listed = ["pipeline.devices=cuda:0,cuda:1"];
        assert_eq!(forward(&listed, 2, &[]), 4);
        assert_eq!(forward(&listed, 1, &[]), 2);
    }
}
