//! From what was typed to what it means.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use gpipe_sched::Schedule;
use serde::Deserialize;
use toml::{Table, Value};

use super::entry::{self, Entry, Schema};
use super::{Config, Devices, Order, presets};
use crate::args::Settings;
use crate::data::{self, AUTO, DIGITS};
use crate::fail::{Fail, Result};
use crate::model_folder::{self, Architecture, Description};

/// The whole configuration: defaults of the model ◄ file ◄ `--set` ◄ flags.
pub fn resolve(settings: &Settings) -> Result<Config> {
    let schema = Schema::new();
    let mut typed = Keys::default();
    if let Some(path) = &settings.config {
        typed.lay(entry::of_file(&schema, path, &entry::read_file(path)?)?)?;
    }
    let of_file = typed.text("model", "name").map(str::to_owned);
    typed.lay(entry::of_set(&schema, settings)?)?;
    typed.lay(entry::of_flags(&schema, settings)?)?;
    let same = typed.text("model", "name") == of_file.as_deref();
    complete(typed, settings.stand_in.as_deref().filter(|_| same))
}

/// The whole configuration that a file with this text stands for.
pub fn resolve_text(text: &str) -> Result<Config> {
    let mut typed = Keys::default();
    let name = Path::new("file.toml");
    typed.lay(entry::of_file(&Schema::new(), name, text)?)?;
    complete(typed, None)
}

/// Some or all keys of a configuration.
#[derive(Clone, Default)]
struct Keys(Table);

impl Keys {
    fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.0.get(section)?.get(key)
    }

    fn number(&self, section: &str, key: &str) -> Option<i64> {
        self.get(section, key)?.as_integer()
    }

    fn text(&self, section: &str, key: &str) -> Option<&str> {
        self.get(section, key)?.as_str()
    }

    fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let one = Table::from_iter([(key.to_owned(), value.into())]);
        entry::overlay(
            &mut self.0,
            Table::from_iter([(section.to_owned(), Value::Table(one))]),
        );
    }

    fn remove(&mut self, section: &str, key: &str) -> Option<Value> {
        self.0.get_mut(section)?.as_table_mut()?.remove(key)
    }

    /// The listed workers, unless none were listed.
    fn devices(&self) -> Option<Devices> {
        self.text("pipeline", "devices")?.parse().ok()
    }

    /// Lays one layer of entries over those before it. A key that says in other words what an
    /// earlier layer said replaces it: another model its sizes, workers the number of stages,
    /// micro-batches their size, and the other way round.
    fn lay(&mut self, layer: Vec<Entry>) -> Result<()> {
        let mut upper = Self::default();
        for Entry {
            section,
            key,
            value,
            ..
        } in layer
        {
            upper.set(&section, &key, value);
        }
        let says = |key| upper.get("pipeline", key).is_some();
        let cuts_batch = [says("micro_batches"), says("micro_batch_size")];
        if cuts_batch == [true; 2] {
            return Err(Fail::asked(
                "pipeline.micro_batches and pipeline.micro_batch_size: give one of the two",
            ));
        }
        if cuts_batch != [false; 2] {
            self.remove("pipeline", "micro_batches");
            self.remove("pipeline", "micro_batch_size");
        }
        if says("devices") {
            self.remove("pipeline", "stages");
        } else if says("stages")
            && self
                .devices()
                .is_some_and(|devices| devices.repeated().is_none())
        {
            self.remove("pipeline", "devices");
        }
        let [known, new] = [&*self, &upper].map(|keys| keys.text("model", "name"));
        if known.is_some() && new.is_some() && known != new {
            self.0.remove("model");
        }
        entry::overlay(&mut self.0, upper.0);
        Ok(())
    }
}

/// Gives every key that was not typed its default. A model that comes from a folder is described there,
/// or where a checkpoint keeps it.
fn complete(typed: Keys, stand_in: Option<&Path>) -> Result<Config> {
    let name = typed.text("model", "name").unwrap_or(presets::NAMES[0]);
    let (defaults, described) = match (presets::preset(name), stand_in) {
        (Some(defaults), _) => (defaults, None),
        (None, Some(folder)) => {
            let described = model_folder::describe(folder)?;
            let defaults = presets::of_folder(name, &described.model);
            (defaults, Some((PathBuf::from(name), described)))
        }
        (None, None) if names_folder(name) => {
            let place = model_folder::find(Path::new(name))?;
            if let Some(damage) = place.warnings.first() {
                return Err(Fail::asked(format!(
                    "--model {name}: {damage}: name the checkpoint that is meant"
                )));
            }
            let folder = place.model;
            let described = model_folder::describe(&folder)?;
            let defaults = presets::of_folder(name, &described.model);
            (defaults, Some((folder, described)))
        }
        (None, None) => return Err(unknown_model(name)),
    };
    let classifies = match &described {
        Some((_, described)) => matches!(described.model, Architecture::Perceptron { .. }),
        None => name == presets::PERCEPTRON,
    };
    check_keys(name, classifies, &typed)?;
    let mut keys = Keys(defaults);
    entry::overlay(&mut keys.0, typed.0.clone());
    if let Some((folder, described)) = &described {
        check_described(name, described, &typed)?;
        keys.set("model", "name", folder.to_string_lossy().into_owned());
    }

    let order: Option<Order> = keys
        .text("pipeline", "schedule")
        .and_then(|name| name.parse().ok());
    let table = order.as_ref().map_or(Ok(None), Order::table)?;
    if let Some(table) = &table {
        let fitting = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        if typed.get("pipeline", "stages").is_none() {
            keys.set("pipeline", "stages", fitting(table.stages()));
        }
        let cuts_batch = ["micro_batches", "micro_batch_size"];
        if cuts_batch
            .iter()
            .all(|key| typed.get("pipeline", key).is_none())
        {
            keys.set("pipeline", "micro_batches", fitting(table.micro_batches()));
        }
    }
    let batch = keys.number("data", "batch_size").unwrap_or(1);
    match keys
        .remove("pipeline", "micro_batch_size")
        .and_then(|size| size.as_integer())
    {
        Some(size) => keys.set("pipeline", "micro_batches", (batch - 1) / size + 1),
        None if typed.get("pipeline", "micro_batches").is_some() || table.is_some() => {}
        None => {
            let most = keys.number("pipeline", "micro_batches").unwrap_or(1);
            keys.set("pipeline", "micro_batches", most.min(batch));
        }
    }
    if typed.get("model", "context").is_none() && described.is_none() {
        let tokens = keys
            .number("data", "seq_len")
            .max(keys.number("model", "context"));
        keys.set("model", "context", tokens.unwrap_or(1));
    }
    let chosen = keys.text("data", "tokenizer").unwrap_or(AUTO);
    let follows = described.is_none() && typed.get("model", "vocab").is_none();
    if follows
        && name != presets::PERCEPTRON
        && let Some(size) = data::size(chosen)?
    {
        keys.set("model", "vocab", i64::try_from(size).unwrap_or(i64::MAX));
    }
    if typed.get("pipeline", "threads").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        keys.set("pipeline", "threads", i64::try_from(cores).unwrap_or(1));
    }
    if let Some(devices) = typed.devices() {
        let workers = devices.workers();
        let chunks = order.as_ref().map_or(1, Order::chunks) as u64;
        let rows = table
            .as_ref()
            .map_or(workers, |table| table.devices() as u64);
        if rows != workers && devices.repeated().is_none() {
            return Err(Fail::asked(format!(
                "{workers} workers in `{devices}` but {rows} rows in the table of --schedule: list \
                 one for each, or a bare name for all"
            )));
        }
        let fitting = match &table {
            Some(table) => i64::try_from(table.stages()).unwrap_or(i64::MAX),
            None => i64::try_from(workers.saturating_mul(chunks)).unwrap_or(i64::MAX),
        };
        match typed.number("pipeline", "stages") {
            None => keys.set("pipeline", "stages", fitting),
            Some(stages) if devices.repeated().is_none() && stages != fitting => {
                let each = match chunks {
                    1 => "list one for each stage".to_owned(),
                    chunks => format!("list one for every {chunks} stages"),
                };
                return Err(Fail::asked(format!(
                    "{stages} stages but {workers} workers in `{devices}`: {each}, or a bare name \
                     for all"
                )));
            }
            Some(_) => {}
        }
        keys.set("pipeline", "devices", devices.shortest().to_string());
    }
    let config = Config::deserialize(keys.0).map_err(|error| Fail::asked(error.message()))?;
    check(&config)?;
    if let Some(table) = &table {
        check_table(&config, table)?;
    }
    Ok(config)
}

/// A table leaves no choice of stages and micro-batches.
fn check_table(config: &Config, table: &Schedule) -> Result<()> {
    let pipeline = &config.pipeline;
    for (what, flag, has, asked) in [
        ("stages", "--stages", table.stages(), pipeline.stages.get()),
        (
            "micro-batches",
            "--micro-batches",
            table.micro_batches(),
            pipeline.micro_batches.get(),
        ),
    ] {
        if has != asked {
            return Err(Fail::asked(format!(
                "--schedule {}: the table has {has} {what} but {asked} are asked for: use {flag} {has}",
                pipeline.schedule
            )));
        }
    }
    Ok(())
}

/// Refuses keys that the model does not have.
fn check_keys(name: &str, classifies: bool, typed: &Keys) -> Result<()> {
    let keys = typed.0.get("model").and_then(Value::as_table);
    let foreign = presets::foreign(classifies);
    let Some(key) = keys
        .into_iter()
        .flat_map(Table::keys)
        .find(|key| foreign(key))
    else {
        return Ok(());
    };
    let mend = match key.as_str() {
        "hidden" => format!("leave it out, or use --model {}", presets::PERCEPTRON),
        _ => "its keys are model.hidden and model.dropout".to_owned(),
    };
    Err(Fail::asked(format!(
        "the model {name} has no model.{key}: {mend}"
    )))
}

/// What no key can tell alone.
fn check(config: &Config) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    let perceptron = presets::PERCEPTRON;
    match (model.classifies(), data.source == DIGITS) {
        (true, false) => {
            return Err(Fail::asked(format!(
                "the model {perceptron} reads images, not the text {}: use --data {DIGITS}",
                data.source
            )));
        }
        (false, true) => {
            return Err(Fail::asked(format!(
                "the model {} reads text, and {DIGITS} are images: use --model {perceptron}",
                model.name
            )));
        }
        (true, true) if data.tokenizer != AUTO => {
            return Err(Fail::asked("an image has no tokens: leave --tokenizer out"));
        }
        (true, true) if data.seq_len.get() != 1 => {
            return Err(Fail::asked("an image has no tokens: leave --seq-len out"));
        }
        _ => {}
    }
    if config.run.tf32 && !config.pipeline.devices.has_gpu() {
        return Err(Fail::asked(
            "run.tf32 is for CUDA devices: use --devices cuda:0, or --set run.tf32=false",
        ));
    }
    let (batch, micro_batches) = (
        config.data.batch_size.get(),
        config.pipeline.micro_batches.get(),
    );
    if micro_batches > batch {
        return Err(Fail::asked(format!(
            "{micro_batches} micro-batches but {batch} samples a batch: use --micro-batches {batch} or fewer"
        )));
    }
    let (tokens, context) = (config.data.seq_len.get(), config.model.context.get());
    if tokens > context {
        return Err(Fail::asked(format!(
            "samples of {tokens} tokens but a model of {context} positions: use --seq-len {context} or less, \
             or --set model.context={tokens}"
        )));
    }
    Ok(())
}

/// Whether a model is meant that is in a folder: then it is an error if the folder is not there.
fn names_folder(name: &str) -> bool {
    name.contains(['/', '\\']) || matches!(name, "." | "..") || Path::new(name).is_dir()
}

/// A model in a folder has the sizes that it has: keys may repeat them, as the file of an earlier
/// run does, but not change them.
fn check_described(name: &str, described: &Description, typed: &Keys) -> Result<()> {
    if !described.one_dropout && typed.get("model", "dropout").is_none() {
        return Err(Fail::asked(format!(
            "{name}: embd_pdrop, attn_pdrop and resid_pdrop differ, but dropout has one value: choose it with --dropout"
        )));
    }
    let of_folder = Keys(presets::of_folder(name, &described.model));
    for (key, value) in typed
        .0
        .get("model")
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
    {
        let known = of_folder.get("model", key);
        if key != "dropout" && known.is_some_and(|known| known != value) {
            let known = known.map_or_else(String::new, Value::to_string);
            return Err(Fail::asked(format!(
                "model.{key} = {value} but {name} has {known}: leave model.{key} out"
            )));
        }
    }
    Ok(())
}

fn unknown_model(name: &str) -> Fail {
    let nearest = entry::nearest(name, presets::NAMES.into_iter());
    let names = presets::NAMES.join(", ");
    Fail::asked(format!(
        "unknown model `{name}`: use one of {names}, or a folder with config.json; did you mean `{nearest}`?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(set: &[&str]) -> Settings {
        Settings {
            set: set.iter().map(|&text| text.to_owned()).collect(),
            ..Settings::default()
        }
    }

    fn resolved(set: &[&str]) -> Config {
        resolve(&settings(set)).unwrap()
    }

    fn refused(set: &[&str]) -> String {
        match resolve(&settings(set)).unwrap_err() {
            Fail::Usage(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_model_has_a_complete_configuration_that_reads_back() {
        for name in presets::NAMES {
            let config = resolved(&[&format!("model.name={name}")]);
            assert_eq!(config.model.name, name);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("config.toml");
            std::fs::write(&file, config.to_toml().unwrap()).unwrap();
            let again = resolve(&Settings {
                config: Some(file),
                ..Settings::default()
            })
            .unwrap();
            assert_eq!(again, config);
        }
    }

    #[test]
    fn flags_win_over_set_which_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, "[run]\nsteps = 1\nseed = 1\n[optimizer]\nlr = 1\n").unwrap();
        let mut settings = settings(&["run.steps=2", "run.seed=2"]);
        settings.config = Some(file);
        settings.seed = Some("3".into());
        let config = resolve(&settings).unwrap();
        assert_eq!(
            (
                config.run.steps.get(),
                config.run.seed.u64(),
                config.optimizer.lr.get()
            ),
            (2, 3, 1.0)
        );
    }

    #[test]
    fn stages_and_workers_follow_each_other() {
        let stages = |set: &[&str]| {
            let config = resolved(set);
            (
                config.pipeline.stages.get(),
                config.pipeline.devices.to_string(),
            )
        };
        assert_eq!(stages(&[]), (4, "cpu".into()));
        assert_eq!(stages(&["pipeline.stages=3"]), (3, "cpu".into()));
        assert_eq!(stages(&["pipeline.devices=cpu*3"]), (3, "cpu".into()));
        assert_eq!(stages(&["pipeline.devices=cpu,cpu"]), (2, "cpu".into()));
        assert_eq!(stages(&["pipeline.devices=cpu"]), (1, "cpu".into()));
        assert_eq!(
            stages(&["pipeline.devices=cpu", "pipeline.stages=5"]),
            (5, "cpu".into())
        );
        assert!(refused(&["pipeline.devices=cpu*2", "pipeline.stages=3"]).contains("2 workers"));
        let folded = ["pipeline.devices=cpu*2", "pipeline.schedule=zb-v"];
        assert_eq!(stages(&folded), (4, "cpu".into()));
        let three = [
            "pipeline.devices=cpu*2",
            "pipeline.stages=8",
            "pipeline.schedule=interleaved:3",
        ];
        assert!(refused(&three).contains("list one for every 3 stages"));
    }

    #[test]
    fn a_flag_replaces_what_the_file_said_in_other_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        let text = "[model]\nname = 'gpt-mini'\nblocks = 2\n\
                    [pipeline]\ndevices = 'cpu,cuda:0'\nmicro_batches = 16\n";
        std::fs::write(&file, text).unwrap();
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings {
                config: Some(file.clone()),
                ..Settings::default()
            };
            change(&mut settings);
            resolve(&settings).unwrap()
        };
        let config = with(|s| s.stages = Some("3".into()));
        assert_eq!(config.pipeline.devices.to_string(), "cpu");
        let config = with(|s| s.micro_batch_size = Some("3".into()));
        assert_eq!(config.pipeline.micro_batches.get(), 6);
        let config = with(|s| s.model = Some("gpt-nano".into()));
        assert_eq!(config.model.blocks.get(), 4);
        let config = with(|s| s.model = Some("gpt-mini".into()));
        assert_eq!(config.model.blocks.get(), 2);
        let mut settings = settings(&["model.blocks=3"]);
        settings.model = Some("gpt-mini".into());
        assert_eq!(resolve(&settings).unwrap().model.blocks.get(), 3);
    }

    #[test]
    fn defaults_follow_the_keys_they_depend_on() {
        assert_eq!(
            resolved(&["data.batch_size=3"])
                .pipeline
                .micro_batches
                .get(),
            3
        );
        assert_eq!(resolved(&["data.seq_len=99"]).model.context.get(), 99);
        assert_eq!(resolved(&["model.name=gpt2"]).model.context.get(), 1024);
        assert!(refused(&["data.seq_len=99", "model.context=98"]).contains("--seq-len 98"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_mend() {
        let cases = [
            ("pipeline.stages=0", "use a whole number from 1"),
            ("pipeline.stages=-1", "use a whole number from 1"),
            ("pipeline.stages=four", "no whole number"),
            ("data.batch_size=99999999999", "out of range"),
            ("data.batch_size=99999999999999999999", "too large"),
            ("optimizer.lr=fast", "no number"),
            ("optimizer.lr=nan", "finite"),
            ("optimizer.lr=-1", "from 0 up"),
            ("model.dropout=1", "below 1"),
            ("data.shuffle=maybe", "true or false"),
            ("pipeline.schedule=gpip", "use gpipe, 1f1b, "),
            ("pipeline.schedule=interleaved:0", "from 1 to 65535"),
            ("pipeline.schedule=interleaved", "interleaved:V"),
            ("pipeline.remat=every:0", "every:N"),
            ("pipeline.partition=even", "3,3,4,2"),
            ("pipeline.devices=gpu", "gpu"),
            ("pipeline.micro_batches=17", "--micro-batches 16"),
            ("model.name=gpt-nanu", "did you mean `gpt-nano`"),
            ("pipeline.stagse=1", "did you mean `pipeline.stages`"),
            ("stages=1", "did you mean `pipeline.stages`"),
            ("optimiser.beta_1=1", "did you mean `optimizer.beta1`"),
            ("lr", "SECTION.KEY=VALUE"),
        ];
        for (set, mend) in cases {
            let message = refused(&[set]);
            assert!(message.contains(mend), "{set}: {message}");
        }
    }

    #[test]
    fn a_fault_in_a_file_has_its_line() {
        let cases = [
            (
                "[run]\nseed = 1\nstpes = 3\n",
                "line 3: unknown key `run.stpes`: did you mean `run.steps`?",
            ),
            (
                "[runn]\nseed = 1\n",
                "line 1: unknown section [runn]: did you mean [run]?",
            ),
            (
                "steps = 3\n",
                "line 1: unknown key `steps`: did you mean `run.steps`?",
            ),
            (
                "[run]\n\nsteps = 0\n",
                "line 3: run.steps: 0 is out of range",
            ),
            (
                "[run]\nsteps = 'x'\n",
                "line 2: run.steps: `x` is no whole number",
            ),
            ("[run]\nsteps = \n", "line 2: "),
            ("run = 3\n", "line 1: `run` is a section"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        for (text, fault) in cases {
            std::fs::write(&file, text).unwrap();
            let settings = Settings {
                config: Some(file.clone()),
                ..Settings::default()
            };
            let Err(Fail::Usage(error)) = resolve(&settings) else {
                panic!("{text}")
            };
            assert!(error.to_string().contains(fault), "{text}: {error}");
        }
    }
}
