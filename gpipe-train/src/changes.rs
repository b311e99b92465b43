//! The effect of keys that differ between a checkpoint and the run that goes on from it.

use toml::{Table, Value};

use crate::config::TrainConfig;
use crate::error::{Error, Result};

/// What another value of a key means for the run.
enum Effect {
    /// The results are the same, or it is what was asked for.
    None,
    /// The run goes on, but not to the same bits.
    Told(&'static str),
    /// The checkpoint does not fit.
    Refused,
}

/// What each key means. Keys of `[pipeline]` but one change no bit, and neither does when something is
/// written.
fn effect(section: &str, key: &str) -> Effect {
    match (section, key) {
        ("model", "dropout") => Effect::Told("other activations are dropped from here on"),
        ("model", _) => Effect::Refused,
        ("pipeline", "micro_batches") => {
            Effect::Told("from here on results are equal to rounding, not bit for bit")
        }
        ("run", "seed") => Effect::Told("samples come in another order from here on"),
        // The processor's instructions are compared by themselves.
        ("run", "instruction_set") => Effect::None,
        ("run", "dtype" | "tf32") => Effect::Told("numbers are of another precision from here on"),
        ("pipeline" | "run", _) => Effect::None,
        ("data", _) => Effect::Told("other samples are trained on from here on"),
        _ => Effect::Told("updates are others from here on"),
    }
}

/// What to tell about the keys that differ from the checkpoint's, a line each.
///
/// # Errors
/// [`Error::Invalid`] for the first key with which the run cannot go on.
pub fn changes(saved: &TrainConfig, now: &TrainConfig, step: u64) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let tables = [saved, now].map(|config| Table::try_from(config).map_err(Error::run));
    let [saved_keys, now_keys] = tables;
    let (saved_keys, now_keys) = (saved_keys?, now_keys?);
    for (section, keys) in &now_keys {
        for (key, value) in keys.as_table().into_iter().flatten() {
            let before = saved_keys.get(section).and_then(|keys| keys.get(key));
            if before == Some(value) {
                continue;
            }
            let before = before.map_or("not set".to_owned(), Value::to_string);
            match effect(section, key) {
                Effect::None => {}
                Effect::Told(what) => told.push(format!(
                    "{section}.{key} is {value}, but {before} in the checkpoint: {what}"
                )),
                Effect::Refused => {
                    return Err(Error::invalid(format!(
                        "{section}.{key} is {value}, but {before} in the checkpoint: a model goes on as \
                         it began; leave the key away, or begin anew"
                    )));
                }
            }
        }
    }
    told.extend(held_out(saved, now));
    told.extend(curve(saved, now, step)?);
    Ok(told)
}

/// A tail of the text is held out only by runs that evaluate.
fn held_out(saved: &TrainConfig, now: &TrainConfig) -> Option<String> {
    let (before, after) = (saved.run.eval_every.get(), now.run.eval_every.get());
    ((before == 0) != (after == 0)).then(|| {
        format!(
            "run.eval_every is {after}, but {before} in the checkpoint: the last tenth of the text is \
             held out {}, so other samples are trained on from here on",
            if after == 0 { "no more" } else { "from here on" }
        )
    })
}

/// A longer run has another curve of the learning rate, and gets onto it at once.
fn curve(saved: &TrainConfig, now: &TrainConfig, step: u64) -> Result<Option<String>> {
    let (before, after) = (saved.run.steps.u64(), now.run.steps.u64());
    if after < step {
        return Err(Error::invalid(format!(
            "{after} steps, but the checkpoint is of step {step}: use `run.steps = {step}` or more"
        )));
    }
    // Changes of the curve's own keys were told already.
    if before == after || saved.optimizer != now.optimizer {
        return Ok(None);
    }
    let [old, new] = [saved, now].map(|config| config.learning_rate().lr_at(step));
    Ok((old != new).then(|| {
        format!(
            "run.steps is {after}, but {before} in the checkpoint: the learning rate follows the curve to \
             step {after}, so the next is {new:.1e} instead of {old:.1e}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Setting};

    fn config(set: &[&str]) -> TrainConfig {
        let setting = |text: &&str| {
            let (key, value) = text.split_once('=').unwrap();
            Setting::text(*text, key, value)
        };
        let overrides = Overrides::new().layer(set.iter().map(setting)).unwrap();
        overrides.resolve().unwrap()
    }

    #[test]
    fn what_changes_no_bit_is_not_told() {
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
        let told = changes(&config(&[]), &config(&free), 120).unwrap();
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn every_change_that_shows_is_told_by_its_key() {
        for (set, words) in [
            (
                "pipeline.micro_batches=4",
                "is 4, but 8 in the checkpoint: from here on results are equal to rounding",
            ),
            ("optimizer.beta1=0.8", "is 0.8, but 0.9 in the checkpoint"),
            ("optimizer.clip_norm=0", "updates are others"),
            ("optimizer.lr_schedule=constant", "updates are others"),
            ("model.dropout=0.1", "dropped"),
            ("data.batch_size=32", "other samples"),
            ("data.source=Cargo.toml", "other samples"),
            ("data.shuffle=false", "other samples"),
            ("run.seed=1", "another order"),
            ("run.eval_every=10", "held out from here on"),
            ("run.steps=400", "so the next is 8.5e-4 instead of 7.5e-4"),
        ] {
            let told = changes(&config(&[]), &config(&[set]), 120).unwrap();
            let key = set.split_once('=').unwrap().0;
            assert_eq!(told.len(), 1, "{set}: {told:?}");
            assert!(
                told[0].starts_with(key) && told[0].contains(words),
                "{told:?}"
            );
        }
        let constant = "optimizer.lr_schedule=constant";
        let longer = changes(
            &config(&[constant]),
            &config(&[constant, "run.steps=400"]),
            120,
        );
        assert_eq!(longer.unwrap(), Vec::<String>::new());
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
