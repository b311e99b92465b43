//! Defaults that depend on other keys.

use std::num::NonZero;
use std::path::Path;

use gpipe_data::{AUTO, CICERO, CLASSES, DIGITS, SIDE, SYNTHETIC, count_classes};
use gpipe_report::numbers::counted;
use gpipe_sched::Schedule;
use toml::Value;

use super::keys::{Keys, overlay};
use super::model_defaults::ModelDefaults;
use super::parameter_pattern::ParameterPattern;
use super::preset_values::digits;
use super::schedule::ScheduleChoice;
use crate::error::{Error, Result, one_line};

/// A configuration under construction.
pub struct Draft {
    /// The values so far: given, or the default of the model.
    pub keys: Keys,
    /// The table that `pipeline.schedule` names, if any.
    pub table: Option<Schedule>,
    /// The number of listed workers, if they are.
    pub listed: Option<u64>,
    given: Keys,
    model: ModelDefaults,
    schedule: Option<ScheduleChoice>,
}

impl Draft {
    /// The given keys over the defaults of the given model.
    pub fn new(given: Keys, saved_model: Option<&Path>) -> Result<Self> {
        let model = ModelDefaults::of(&given, saved_model)?;
        model.check(&given)?;
        let mut keys = Keys(model.defaults.clone());
        overlay(&mut keys.0, given.0.clone());
        // Added to the gradient, a decay of AdamW's size would be most of it.
        if keys.text("optimizer", "name") != Some("adamw")
            && !given.has("optimizer", "weight_decay")
        {
            keys.set("optimizer", "weight_decay", 0.0);
        }
        if let Some(folder) = model.folder() {
            keys.set("model", "name", folder.to_string_lossy().into_owned());
        }
        let schedule: Option<ScheduleChoice> = keys
            .text("pipeline", "schedule")
            .and_then(|name| name.parse().ok());
        Ok(Self {
            table: None,
            listed: None,
            keys,
            given,
            model,
            schedule,
        })
    }

    /// Takes rank, scale, dropout and targets of adapters from their folder, if there is one. Those that were given may
    /// repeat rank, scale and targets, as the file of an earlier run does, but not change them.
    pub fn read_adapter(&mut self) -> Result<()> {
        let folder = self.given.text("lora", "adapter").unwrap_or_default();
        if folder.is_empty() {
            return Ok(());
        }
        let adapter = gpipe_hf::read_adapter(Path::new(folder)).map_err(|error| {
            let fault = one_line(&error);
            Error::invalid(format!("`lora.adapter = {folder}`: {fault}"))
        })?;
        let settings = adapter.settings;
        // Python's regular expressions have more than these.
        let parsed = adapter.targets.parse::<ParameterPattern>();
        let is_read = parsed.is_ok();
        if let Err(error) = parsed
            && !self.given.has("lora", "targets")
        {
            return Err(Error::invalid(format!(
                "{folder}: `target_modules` cannot be read: {error}: give `lora.targets = REGEX` too"
            )));
        }
        for (key, found, fixed) in [
            ("rank", Value::Integer(whole(settings.rank)), true),
            ("alpha", digits(settings.alpha), true),
            ("dropout", digits(settings.dropout), false),
            ("targets", adapter.targets.into(), is_read),
        ] {
            let shown = |value: &Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };

            match self.given.get("lora", key) {
                Some(given) if fixed && *given != found => {
                    return Err(Error::invalid(format!(
                        "`lora.{key} = {}`, but {folder} has {}: leave `lora.{key}` out",
                        shown(given),
                        shown(&found)
                    )));
                }
                Some(_) => {}
                None => self.keys.set("lora", key, found),
            }
        }
        Ok(())
    }

    /// Reads the table, if the schedule is one, and takes the numbers of stages and micro-batches from it, unless they were
    /// given. It is that of each replica.
    pub fn follow_table(&mut self) -> Result<()> {
        let replicas = self.replicas();
        let schedule = self.schedule.as_ref();
        self.table = schedule.map_or(Ok(None), ScheduleChoice::table)?;
        let Some(table) = &self.table else {
            return Ok(());
        };
        if !self.given.has("pipeline", "stages") {
            self.keys.set("pipeline", "stages", whole(table.stages()));
        }
        let cuts_batch = ["micro_batches", "micro_batch_size"];
        if !cuts_batch.iter().any(|key| self.given.has("pipeline", key)) {
            let micro_batches = table.micro_batches() as u64;
            let micro_batches = whole(micro_batches.saturating_mul(replicas));
            self.keys.set("pipeline", "micro_batches", micro_batches);
        }
        Ok(())
    }

    /// Takes the samples of a step from costs that are of `batch` samples, or else has one for each micro-batch.
    pub fn follow_costs(&mut self, batch: Option<usize>) -> Result<()> {
        let given = self.given.number("data", "batch_size");
        let number = |section, key| self.keys.number(section, key).unwrap_or(1);
        let samples = match (given, batch.map(whole)) {
            (Some(given), Some(batch)) if given != batch => {
                return Err(Error::invalid(format!(
                    "`data.batch_size = {given}`, but the costs are those of {}: use `data.batch_size = {batch}`",
                    counted(batch.unsigned_abs(), "sample")
                )));
            }
            (Some(given), _) => given,
            (None, Some(batch)) => batch,
            (None, None) => number("data", "batch_size").max(number("pipeline", "micro_batches")),
        };
        self.keys.set("data", "batch_size", samples);
        Ok(())
    }

    /// Computes the number of micro-batches from their size; without one, limits `most`, or the default
    /// of the model, to the number of samples.
    pub fn cut_batch(&mut self, most: Option<i64>) {
        let batch = self.keys.number("data", "batch_size").unwrap_or(1);
        let size = self.keys.remove("pipeline", "micro_batch_size");
        let given = self.given.has("pipeline", "micro_batches") || self.table.is_some();
        let micro_batches = match size.and_then(|size| size.as_integer()) {
            Some(size) => (batch - 1) / size + 1,
            None if given => return,
            None => {
                let most = most.or_else(|| self.keys.number("pipeline", "micro_batches"));
                most.unwrap_or(1).min(batch)
            }
        };
        self.keys.set("pipeline", "micro_batches", micro_batches);
    }

    /// Extends the context to the tokens of a sample and sets the vocabulary to that of the tokenizer,
    /// unless they were given; for images, their size, channels and classes. The sizes of a model in a
    /// folder are fixed.
    pub fn fit_model_to_data(&mut self) -> Result<()> {
        if self.model.has("network") {
            self.fit_model_to_images()?;
        }
        if self.model.folder().is_some() {
            return Ok(());
        }
        if self.model.has("context") && !self.given.has("model", "context") {
            let sample = self.keys.number("data", "seq_len");
            let tokens = sample.max(self.keys.number("model", "context"));
            self.keys.set("model", "context", tokens.unwrap_or(1));
        }
        let tokenizer = self.keys.text("data", "tokenizer").unwrap_or(AUTO);
        if self.model.has("vocab")
            && !self.given.has("model", "vocab")
            && let Some(size) = gpipe_data::vocabulary_size(tokenizer)?
        {
            self.keys.set("model", "vocab", whole(size));
        }
        Ok(())
    }

    /// Sets size, channels and classes to those of the images, unless they were given.
    fn fit_model_to_images(&mut self) -> Result<()> {
        let source = self.keys.text("data", "source").unwrap_or(SYNTHETIC);
        let source = source.to_owned();
        let fixed = self.model.folder().is_some();
        let masks = self.keys.text("data", "loss_target") == Some("mask");
        let mut follow = |section, key, of_data: usize| {
            let known = fixed && section == "model";
            if !known && !self.given.has(section, key) {
                self.keys.set(section, key, whole(of_data));
            }
        };
        match source.as_str() {
            // Cicero is refused later.
            SYNTHETIC | CICERO => {}
            _ if masks => {}
            DIGITS => {
                follow("data", "image_size", SIDE);
                follow("model", "channels", 1);
                follow("model", "classes", CLASSES);
            }
            // Known classes need no folder, which may have moved since.
            _ if fixed || self.given.has("model", "classes") => {}
            folder => follow("model", "classes", count_classes(folder)?),
        }
        Ok(())
    }

    /// Defaults to one thread per core, of those of this rank.
    pub fn use_all_cores(&mut self, ranks_here: usize) {
        if !self.given.has("pipeline", "threads") {
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            self.keys
                .set("pipeline", "threads", whole((cores / ranks_here).max(1)));
        }
    }

    /// The number of replicas, where it was given.
    fn replicas(&self) -> u64 {
        let given = self.given.number("pipeline", "replicas").unwrap_or(1);
        u64::try_from(given).unwrap_or(1).max(1)
    }

    /// Sets keys of `[run]` that were not given otherwise, if there is a GPU.
    pub fn ask_gpus(&mut self, keys: Vec<(&str, Value)>) {
        let devices = self.given.devices();
        if devices.is_some_and(|devices| devices.has_gpu()) {
            for (key, value) in keys {
                if !self.given.has("run", key) {
                    self.keys.set("run", key, value);
                }
            }
        }
    }

    /// Derives the number of stages from the listed workers and the stages that the schedule puts on
    /// each; refuses a given number that differs.
    pub fn place_stages(&mut self, ranks: usize) -> Result<()> {
        let replicas = self.replicas();
        if !self.given.has("pipeline", "groups") {
            self.keys.set("pipeline", "groups", whole(replicas));
        }
        // Without a launcher it is a plan, or is refused when it starts.
        let ranks = ranks as u64;
        if ranks > 1 && !ranks.is_multiple_of(replicas) {
            return Err(Error::uneven_replicas(replicas, ranks));
        }
        let Some(devices) = self.given.devices() else {
            return Ok(());
        };
        // Each rank has those that are listed.
        let sharing = (ranks / replicas).max(1);
        let workers = devices.workers().saturating_mul(sharing);
        let repeated = devices.repeated().is_some();
        let chunks = self.schedule.as_ref().map_or(1, ScheduleChoice::chunks) as u64;
        let fitting = match &self.table {
            Some(table) => {
                let rows = table.devices() as u64;
                if rows != workers && !repeated {
                    return Err(Error::invalid(format!(
                        "{} in `pipeline.devices = {devices}` but {} in the table of `pipeline.schedule`: list one for each, \
                         or a bare name for all",
                        counted(workers, "worker"),
                        counted(rows, "row")
                    )));
                }
                whole(table.stages())
            }
            None => whole(workers.saturating_mul(chunks)),
        };
        let most = i64::from(u32::MAX);
        if fitting > most {
            return Err(Error::invalid(format!(
                "`pipeline.devices = {devices}`: {workers} workers with {chunks} stages each: list fewer, for at most \
                 {most} stages"
            )));
        }
        match self.given.number("pipeline", "stages") {
            None => self.keys.set("pipeline", "stages", fitting),
            Some(stages) if !repeated && stages != fitting => {
                let needed = stages.unsigned_abs();
                let by = chunks.saturating_mul(sharing);
                let bare = "or a bare name for all";
                let mend = match by {
                    // No list, and no bare name, has a share of the stages for each worker.
                    _ if self.table.is_some() || !needed.is_multiple_of(by) => {
                        format!("use `pipeline.stages = {fitting}`")
                    }
                    1 => format!("list one for each stage, {bare}"),
                    _ if sharing == 1 => format!("list one for every {chunks} stages, {bare}"),
                    _ => format!("list {} for each rank, {bare}", needed / by),
                };
                let on = match sharing {
                    1 => String::new(),
                    ranks => format!(" on {ranks} ranks"),
                };
                return Err(Error::invalid(format!(
                    "{} but {} in `pipeline.devices = {devices}`{on}: {mend}",
                    counted(needed, "stage"),
                    counted(workers, "worker")
                )));
            }
            Some(_) => {}
        }
        self.listed = (!repeated).then(|| devices.workers());
        let shortest = devices.shortest().to_string();
        self.keys.set("pipeline", "devices", shortest);
        Ok(())
    }
}

/// Converts a count to a TOML integer.
fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
