//! The effect of configuration changes on a resumed run.

use std::collections::BTreeSet;

use gpipe_report::numbers::counted;
use toml::{Table, Value};

use crate::config::{OptimizerName, Overrides, TrainConfig};
use crate::error::{Error, Result};
use crate::precision;
use crate::setup::optimizer;

/// The effect of a changed value.
enum Effect {
    /// Same results, or an intended change.
    None,
    /// Different results, with a warning.
    Warn(&'static str),
    /// The checkpoint cannot be used.
    Refuse,
}

/// The effect of each key. Most keys of `[pipeline]`, and those that decide when to save or evaluate, leave the results the
/// same bit for bit.
fn effect(section: &str, key: &str) -> Effect {
    match (section, key) {
        ("model", "dropout") => Effect::Warn("different activations are dropped from here on"),
        // Where the run began; it goes on from its checkpoint.
        ("model", "weights") => Effect::None,
        // Parameters that were frozen have no optimizer state to go on from.
        ("model" | "lora", _) | ("optimizer", "freeze") => Effect::Refuse,
        ("pipeline", "micro_batches" | "groups" | "before" | "devices") => {
            Effect::Warn("from here on results are equal to rounding, not bit for bit")
        }
        ("run", "seed") => Effect::Warn("samples are in a different order from here on"),
        // Compared separately, with the instructions of the CPU.
        ("run", "instruction_set") => Effect::None,
        ("run", "dtype" | "tf32") => Effect::Warn("the precision is different from here on"),
        ("pipeline" | "run", _) => Effect::None,
        ("data", "loss_target") => Effect::Warn("the loss is another from here on"),
        ("data", _) => Effect::Warn("training uses different samples from here on"),
        _ => Effect::Warn("updates are different from here on"),
    }
}

/// Warnings about keys that differ from those of the checkpoint, which has made `step` steps.
///
/// # Errors
/// [`Error::Invalid`] for the first change that is not possible.
pub fn changes(saved: &TrainConfig, now: &TrainConfig, step: u64) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    // A file omits the section without adapters, and the key where there is one group.
    let tables = [saved, now].map(|config| {
        let mut table = Table::try_from(config).map_err(Error::run)?;
        let lora = Value::try_from(&config.lora).map_err(Error::run)?;
        table.insert("lora".to_owned(), lora);
        if let Some(Value::Table(pipeline)) = table.get_mut("pipeline") {
            let groups = config.pipeline.groups.u64() as i64;
            pipeline.insert("groups".to_owned(), Value::Integer(groups));
        }
        Ok::<_, Error>(table)
    });
    let [saved_keys, now_keys] = tables;
    let (saved_keys, now_keys) = (saved_keys?, now_keys?);
    let normalizes = now.model.depends_on_micro_batches();
    let are_both = |on: fn(&TrainConfig) -> bool| on(saved) && on(now);
    let is_one_kind =
        are_both(precision::on_gpus) || are_both(|config| !config.pipeline.devices.has_gpu());
    for (section, keys) in &now_keys {
        // Keys that files omit at their defaults may be in either.
        let tables =
            [Some(keys), saved_keys.get(section)].map(|keys| keys.and_then(Value::as_table));
        let names = tables.iter().flatten().flat_map(|keys| keys.keys());
        let names: BTreeSet<_> = names.map(|name| (!leads(section, name), name)).collect();
        for (_, key) in names {
            let [now, before] = tables.map(|keys| keys.and_then(|keys| keys.get(key)));
            if before == now {
                continue;
            }
            let (value, before) = (shown(now), shown(before));
            match effect(section, key) {
                Effect::None => {}
                // Processors among themselves give the same bits, and GPUs do.
                Effect::Warn(_) if key == "devices" && is_one_kind => {}
                Effect::Warn(_) if matches!(&**key, "micro_batches" | "before") && normalizes => {
                    warnings.push(format!(
                        "`{section}.{key}` is {value}, but {before} in the checkpoint: batch normalization takes its \
                         statistics from micro-batches, so from here on the model is another"
                    ));
                }
                Effect::Warn(what) => warnings.push(format!(
                    "`{section}.{key}` is {value}, but {before} in the checkpoint: {what}"
                )),
                Effect::Refuse => return Err(keeps_model(section, key, &value, &before)),
            }
        }
    }
    same_states(saved, now)?;
    warnings.extend(held_out(saved, now));
    warnings.extend(learning_rate(saved, now, step)?);
    Ok(warnings)
}

/// The refusal of a given key of another model than that of the checkpoint, if there is one. For keys that make no
/// configuration together: what is wrong with another model is not what the run must change.
pub fn of_another_model(saved: &TrainConfig, given: &Overrides) -> Option<Error> {
    let saved = Table::try_from(saved).ok()?;
    let given = given.given().0.iter();
    let given = given.filter_map(|(section, keys)| Some((section, keys.as_table()?)));
    let keys =
        given.flat_map(|(section, keys)| keys.iter().map(move |(key, now)| (section, key, now)));
    let changed = keys.filter_map(|(section, key, now)| {
        let before = saved.get(section).and_then(|keys| keys.get(key));
        let is_refused = before != Some(now) && matches!(effect(section, key), Effect::Refuse);
        is_refused.then_some((!leads(section, key), section, key, now, before))
    });
    let (_, section, key, now, before) = changed.min_by_key(|(order, ..)| *order)?;
    Some(keeps_model(section, key, &shown(Some(now)), &shown(before)))
}

/// Whether other keys of a section follow from this one: the rank of adapters, and the name of a model.
fn leads(section: &str, key: &str) -> bool {
    matches!((section, key), ("model", "name") | ("lora", "rank"))
}

/// The value of a key as text.
fn shown(value: Option<&Value>) -> String {
    value.map_or("not set".to_owned(), Value::to_string)
}

fn keeps_model(section: &str, key: &str, now: &str, before: &str) -> Error {
    Error::invalid(format!(
        "`{section}.{key}` is {now}, but {before} in the checkpoint: a resumed run keeps its model; leave \
         `{section}.{key}` out, or start a new run"
    ))
}

/// Refuses an optimizer that keeps another state than the checkpoint has.
fn same_states(saved: &TrainConfig, now: &TrainConfig) -> Result<()> {
    let [before, after] = [saved, now].map(|config| optimizer(config).state_names());
    if before == after {
        return Ok(());
    }
    let [before, after] = [saved, now].map(|config| {
        let (name, momentum) = (&config.optimizer.name, config.optimizer.momentum.get());
        match **name {
            OptimizerName::AdamW => name.to_string(),
            _ => format!("{name} with momentum {momentum}"),
        }
    });
    let is_name_same = saved.optimizer.name == now.optimizer.name;
    let [was, is] = [saved, now].map(|config| config.optimizer.momentum.get());
    // Another optimizer has none unless it is given.
    let keeps_momentum = was == is || (!is_name_same && is == 0.0);
    let keys = match (is_name_same, keeps_momentum) {
        (false, true) => "`optimizer.name`",
        (true, _) => "`optimizer.momentum`",
        _ => "`optimizer.name` and `optimizer.momentum`",
    };
    Err(Error::invalid(format!(
        "the optimizer is {after}, but {before} in the checkpoint, whose state it cannot go on with: leave {keys} out, or \
         start a new run"
    )))
}

/// Warns if evaluation is switched on or off: it decides whether a part of the data is held out.
fn held_out(saved: &TrainConfig, now: &TrainConfig) -> Option<String> {
    let (before, after) = (saved.run.eval_every.get(), now.run.eval_every.get());
    ((before == 0) != (after == 0)).then(|| {
        format!(
            "`run.eval_every` is {after}, but {before} in the checkpoint: the last tenth of the data is \
             held out {}, so training uses different samples from here on",
            if after == 0 { "no longer" } else { "from here on" }
        )
    })
}

/// Warns if a different number of steps changes the learning rate, whose schedule ends with the run.
fn learning_rate(saved: &TrainConfig, now: &TrainConfig, step: u64) -> Result<Option<String>> {
    let (before, after) = (saved.run.steps.u64(), now.run.steps.u64());
    if after < step {
        return Err(Error::invalid(format!(
            "{}, but the checkpoint is of step {step}: use `run.steps = {step}` or more",
            counted(after, "step")
        )));
    }
    // Changes of the optimizer's keys have warnings of their own.
    if before == after || saved.optimizer != now.optimizer {
        return Ok(None);
    }
    let [old, new] = [saved, now].map(|config| config.learning_rate().lr_at(step));
    Ok((old != new).then(|| {
        let shown = |digits: usize| [new, old].map(|rate| format!("{rate:.digits$e}"));
        // As few digits as tell them apart.
        let apart = (1..17).map(shown).find(|[new, old]| new != old);
        let [new, old] = apart.unwrap_or_else(|| shown(17));
        format!(
            "`run.steps` is {after}, but {before} in the checkpoint: the learning rate now ends at step {after}, \
             so the next is {new} instead of {old}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    fn overrides(set: &[&str]) -> Overrides {
        let setting = |text: &&str| {
            let (key, value) = text.split_once('=').unwrap();
            Setting::text(*text, key, value)
        };
        Overrides::new().layer(set.iter().map(setting)).unwrap()
    }

    fn config(set: &[&str]) -> TrainConfig {
        overrides(set).resolve().unwrap()
    }

    /// Their own mends are of a new run.
    #[test]
    fn keys_that_fit_no_model_are_those_of_another() {
        for (set, key) in [
            (&["model.hidden=3"][..], Some("model.hidden")),
            (&["model.heads=3"], Some("model.heads")),
            (&["model.name=mlp", "model.blocks=2"], Some("model.name")),
            (&["lora.rank=3", "model.heads=3"], Some("lora.rank")),
            (&["model.dropout=0.5", "data.seq_len=65"], None),
        ] {
            let error = of_another_model(&config(&[]), &overrides(set));
            let words = key.map(|key| format!("leave `{key}` out, or start a new run"));
            let error = error.map(|error| error.to_string());
            let said = || error.clone().unwrap_or_default();
            assert_eq!(error.is_some(), words.is_some(), "{}", said());
            assert!(said().contains(&words.unwrap_or_default()), "{}", said());
        }
    }

    #[test]
    fn no_warning_if_results_stay_the_same() {
        let free = [
            "pipeline.stages=2",
            "pipeline.schedule=1f1b",
            "pipeline.remat=keep",
            "pipeline.threads=3",
            "pipeline.partition=histogram",
            "run.trace_steps=3",
            "run.save_every=3",
            "run.keep=9",
        ];
        let warnings = changes(&config(&[]), &config(&free), 120).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn an_optimizer_of_another_state_is_refused() {
        let moving = ["optimizer.name=sgd", "optimizer.momentum=0.9"];
        let nesterov = [moving[0], moving[1], "optimizer.nesterov=true"];
        let both = "leave `optimizer.name` and `optimizer.momentum` out";
        let adamw = "but adamw in the checkpoint";
        let with_momentum = "is sgd with momentum 0, but sgd with momentum 0.9 in the checkpoint";
        for (before, now, words, mend) in [
            (
                &[][..],
                &["optimizer.name=rmsprop"][..],
                adamw,
                "leave `optimizer.name` out",
            ),
            (&[], &moving[..1], adamw, "leave `optimizer.name` out"),
            (&[], &moving, adamw, both),
            (
                &moving,
                &[],
                "is adamw, but sgd",
                "leave `optimizer.name` out",
            ),
            (
                &moving,
                &moving[..1],
                with_momentum,
                "leave `optimizer.momentum` out",
            ),
        ] {
            let error = changes(&config(before), &config(now), 120).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(words) && error.contains(mend), "{error}");
        }
        // Nor is a default passed over.
        for (before, now) in [(&moving[..], &nesterov[..]), (&nesterov, &moving)] {
            let warnings = changes(&config(before), &config(now), 120).unwrap();
            assert_eq!(warnings.len(), 1);
            assert!(
                warnings[0].starts_with("`optimizer.nesterov` is "),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn a_warning_names_the_key() {
        for (set, words) in [
            (
                "pipeline.micro_batches=4",
                "is 4, but 8 in the checkpoint: from here on results are equal to rounding",
            ),
            (
                "pipeline.devices=cuda:0",
                "is \"cuda:0\", but \"cpu\" in the checkpoint: from here on results are equal to rounding",
            ),
            (
                "pipeline.devices=cpu,cuda:0",
                "results are equal to rounding",
            ),
            (
                "pipeline.groups=2",
                "is 2, but 1 in the checkpoint: from here on results are equal",
            ),
            ("optimizer.beta1=0.8", "is 0.8, but 0.9 in the checkpoint"),
            ("optimizer.clip_norm=0", "updates are different"),
            ("optimizer.lr_schedule=constant", "updates are different"),
            ("model.dropout=0.1", "dropped"),
            ("data.batch_size=32", "different samples"),
            ("data.source=Cargo.toml", "different samples"),
            ("data.shuffle=false", "different samples"),
            ("run.seed=1", "a different order"),
            ("run.eval_every=10", "held out from here on"),
            ("run.steps=400", "so the next is 8.5e-4 instead of 7.5e-4"),
        ] {
            let warnings = changes(&config(&[]), &config(&[set]), 120).unwrap();
            let key = format!("`{}`", set.split_once('=').unwrap().0);
            assert_eq!(warnings.len(), 1, "{set}: {warnings:?}");
            assert!(
                warnings[0].starts_with(&key) && warnings[0].contains(words),
                "{warnings:?}"
            );
        }
        // The warning has enough digits to show that nearly equal rates differ.
        let near = changes(&config(&[]), &config(&["run.steps=301"]), 120).unwrap();
        let rates = near[0].rsplit_once("so the next is ").unwrap().1;
        let (new, old) = rates.split_once(" instead of ").unwrap();
        assert_ne!(new, old);
        // GPUs among themselves give the same bits.
        let gpus = ["pipeline.devices=cuda:0", "pipeline.devices=cuda:0,cuda:1"];
        let [one, two] = gpus.map(|devices| config(&[devices]));
        assert_eq!(changes(&one, &two, 120).unwrap(), Vec::<String>::new());
        let constant = "optimizer.lr_schedule=constant";
        let longer = changes(
            &config(&[constant]),
            &config(&[constant, "run.steps=400"]),
            120,
        );
        assert_eq!(longer.unwrap(), Vec::<String>::new());
    }

    /// Whichever way adapters come or go, the flag that says so is named.
    #[test]
    fn adapters_stay() {
        let two = ["lora.rank=2", "lora.alpha=4"];
        let three = ["lora.rank=3", "lora.alpha=5"];
        for (before, now) in [(&[][..], &two[..]), (&two, &[]), (&two, &three)] {
            let error = changes(&config(before), &config(now), 120).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("`lora.rank` is "), "{error}");
            assert!(error.contains("leave `lora.rank` out"), "{error}");
        }
    }

    /// Its sizes follow from it.
    #[test]
    fn another_model_is_named_by_its_name() {
        let error = changes(&config(&[]), &config(&["model.name=gpt-mini"]), 1).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("leave `model.name` out"), "{error}");
    }

    #[test]
    fn another_model_or_a_shorter_run_is_refused() {
        for set in [
            "model.width=64",
            "model.blocks=3",
            "model.heads=2",
            "model.tied=false",
            "model.gelu=erf",
            "model.context=65",
            "model.name=gpt-mini",
            "run.steps=119",
        ] {
            let error = changes(&config(&[]), &config(&[set]), 120).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{set}");
        }
    }
}
