//! The flags that set keys of the configuration.

use std::sync::OnceLock;

use gpipe_train::Setting;

use super::settings::{Settings, Workers};

/// A flag that sets a key: the flag, the key, and access to the typed value.
type KeyFlag = (&'static str, &'static str, fn(&Settings) -> Option<&str>);

const KEY_FLAGS: [KeyFlag; 39] = [
    ("--model", "model.name", |s| s.model.as_deref()),
    ("--weights", "model.weights", |s| s.weights.as_deref()),
    ("--dropout", "model.dropout", |s| s.dropout.as_deref()),
    ("--data", "data.source", |s| s.data.as_deref()),
    ("--target", "data.target", |s| s.target.as_deref()),
    ("--tokenizer", "data.tokenizer", |s| s.tokenizer.as_deref()),
    ("--seq-len", "data.seq_len", |s| s.seq_len.as_deref()),
    ("--image-size", "data.image_size", |s| {
        s.image_size.as_deref()
    }),
    ("--loss-target", "data.loss_target", |s| {
        s.loss_target.as_deref()
    }),
    ("--batch-size", "data.batch_size", |s| {
        s.batch_size.as_deref()
    }),
    ("--stages", "pipeline.stages", |s| s.stages.as_deref()),
    ("--devices", "pipeline.devices", |s| s.devices.as_deref()),
    ("--micro-batches", "pipeline.micro_batches", |s| {
        s.micro_batches.as_deref()
    }),
    ("--micro-batch-size", "pipeline.micro_batch_size", |s| {
        s.micro_batch_size.as_deref()
    }),
    ("--groups", "pipeline.groups", |s| s.groups.as_deref()),
    ("--schedule", "pipeline.schedule", |s| s.schedule.as_deref()),
    ("--partition", "pipeline.partition", |s| {
        s.partition.as_deref()
    }),
    ("--cost-model", "pipeline.cost_model", |s| {
        s.cost_model.as_deref()
    }),
    ("--remat", "pipeline.remat", |s| s.remat.as_deref()),
    ("--threads", "pipeline.threads", |s| s.threads.as_deref()),
    ("--memory", "pipeline.memory", |s| s.memory.as_deref()),
    ("--lr", "optimizer.lr", |s| s.lr.as_deref()),
    ("--lr-schedule", "optimizer.lr_schedule", |s| {
        s.lr_schedule.as_deref()
    }),
    ("--warmup-steps", "optimizer.warmup_steps", |s| {
        s.warmup_steps.as_deref()
    }),
    ("--optimizer", "optimizer.name", |s| s.optimizer.as_deref()),
    ("--weight-decay", "optimizer.weight_decay", |s| {
        s.weight_decay.as_deref()
    }),
    ("--freeze", "optimizer.freeze", |s| s.freeze.as_deref()),
    ("--label-smoothing", "optimizer.label_smoothing", |s| {
        s.label_smoothing.as_deref()
    }),
    ("--clip-norm", "optimizer.clip_norm", |s| {
        s.clip_norm.as_deref()
    }),
    ("--steps", "run.steps", |s| s.steps.as_deref()),
    ("--eval-every", "run.eval_every", |s| {
        s.eval_every.as_deref()
    }),
    ("--save-every", "run.save_every", |s| {
        s.save_every.as_deref()
    }),
    ("--keep", "run.keep", |s| s.keep.as_deref()),
    ("--seed", "run.seed", |s| s.seed.as_deref()),
    ("--trace-steps", "run.trace_steps", |s| {
        s.trace_steps.as_deref()
    }),
    ("--watchdog", "run.watchdog", |s| s.watchdog.as_deref()),
    ("--dtype", "run.dtype", |s| s.dtype.as_deref()),
    ("--no-shuffle", "data.shuffle", |s| {
        s.no_shuffle.then_some("false")
    }),
    ("--tf32", "run.tf32", |s| s.tf32.then_some("true")),
];

/// The command that runs: messages name only its flags.
static COMMAND: OnceLock<clap::Command> = OnceLock::new();

/// Notes the command that runs.
pub fn set_command(command: clap::Command) {
    // A process runs one command.
    let _ = COMMAND.set(command);
}

/// Whether the command that runs has a flag.
fn has_flag(flag: &str) -> bool {
    COMMAND.get().is_none_or(|command| {
        let mut flags = command.get_arguments().filter_map(clap::Arg::get_long);
        flags.any(|long| flag.strip_prefix("--") == Some(long))
    })
}

/// The flag of the command that runs that stands for a key.
pub fn flag_of(key: &str) -> Option<&'static str> {
    let flag = KEY_FLAGS.iter().find(|(_, of, _)| *of == key);
    flag.map(|(flag, ..)| *flag).filter(|flag| has_flag(flag))
}

/// The command-line form of a setting: a flag such as `--stages 4`, or `--set` for a key without one.
pub fn flag_for(key: &str, value: &str) -> String {
    match flag_of(key) {
        Some("--no-shuffle") if value == "false" => "--no-shuffle".to_owned(),
        Some("--tf32") if value == "true" => "--tf32".to_owned(),
        Some("--no-shuffle" | "--tf32") | None => format!("--set {key}={value}"),
        Some(flag) => format!("{flag} {value}"),
    }
}

/// A word of a POSIX shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Settings {
    /// The arguments of a command that sets these keys and all else as typed, for a POSIX shell.
    pub fn with(&self, keys: &[(&str, String)]) -> String {
        let mut words = Vec::new();
        if let Some(path) = &self.config {
            words.push(format!("--config {}", quoted(&path.display().to_string())));
        }
        words.extend(self.set.iter().map(|set| format!("--set {}", quoted(set))));
        for (flag, key, typed) in KEY_FLAGS {
            let replaced = keys.iter().any(|(replaced, _)| *replaced == key);
            if let Some(text) = typed(self)
                && !replaced
                && flag != "--micro-batch-size"
            {
                words.push(match flag {
                    "--no-shuffle" | "--tf32" => flag.to_owned(),
                    _ => format!("{flag} {}", quoted(text)),
                });
            }
        }
        words.extend(
            keys.iter()
                .map(|(key, value)| flag_for(key, &quoted(value))),
        );
        words.join(" ")
    }

    /// The settings of the typed flags.
    pub fn flags(&self) -> impl Iterator<Item = Setting> {
        KEY_FLAGS.iter().filter_map(|(flag, key, typed)| {
            let text = typed(self)?;
            Some(Setting::text(format!("{flag} {text}"), *key, text))
        })
    }
}

impl Workers {
    /// The settings of the typed flags.
    pub fn settings(&self) -> Vec<Setting> {
        let Self {
            stages,
            devices,
            partition,
            threads,
        } = self.clone();
        let settings = Settings {
            stages,
            devices,
            partition,
            threads,
            ..Settings::default()
        };
        settings.flags().collect()
    }
}
