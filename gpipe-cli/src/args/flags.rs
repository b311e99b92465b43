//! The flags that set keys of the configuration.

use std::sync::OnceLock;

use gpipe_train::{Setting, quoted};

use super::settings::{Settings, Workers};

/// A flag that sets a key: the flag, the key, and access to the typed value.
type KeyFlag = (&'static str, &'static str, fn(&Settings) -> Option<&str>);

macro_rules! key_flags {
    ($($flag:literal $key:literal $field:ident,)* ; $($other:expr,)*) => {
        [$(($flag, $key, |s: &Settings| s.$field.as_deref()),)* $($other,)*]
    };
}

const KEY_FLAGS: [KeyFlag; 49] = key_flags![
    "--model" "model.name" model,
    "--weights" "model.weights" weights,
    "--dropout" "model.dropout" dropout,
    "--data" "data.source" data,
    "--target" "data.target" target,
    "--tokenizer" "data.tokenizer" tokenizer,
    "--seq-len" "data.seq_len" seq_len,
    "--image-size" "data.image_size" image_size,
    "--loss-target" "data.loss_target" loss_target,
    "--batch-size" "data.batch_size" batch_size,
    "--stages" "pipeline.stages" stages,
    "--devices" "pipeline.devices" devices,
    "--micro-batches" "pipeline.micro_batches" micro_batches,
    "--micro-batch-size" "pipeline.micro_batch_size" micro_batch_size,
    "--groups" "pipeline.groups" groups,
    "--replicas" "pipeline.replicas" replicas,
    "--zero" "pipeline.zero" zero,
    "--before" "pipeline.before" before,
    "--schedule" "pipeline.schedule" schedule,
    "--partition" "pipeline.partition" partition,
    "--cost-model" "pipeline.cost_model" cost_model,
    "--remat" "pipeline.remat" remat,
    "--threads" "pipeline.threads" threads,
    "--memory" "pipeline.memory" memory,
    "--lr" "optimizer.lr" lr,
    "--lr-schedule" "optimizer.lr_schedule" lr_schedule,
    "--warmup-steps" "optimizer.warmup_steps" warmup_steps,
    "--optimizer" "optimizer.name" optimizer,
    "--weight-decay" "optimizer.weight_decay" weight_decay,
    "--freeze" "optimizer.freeze" freeze,
    "--lora" "lora.rank" lora,
    "--lora-alpha" "lora.alpha" lora_alpha,
    "--lora-dropout" "lora.dropout" lora_dropout,
    "--lora-targets" "lora.targets" lora_targets,
    "--adapter" "lora.adapter" adapter,
    "--label-smoothing" "optimizer.label_smoothing" label_smoothing,
    "--clip-norm" "optimizer.clip_norm" clip_norm,
    "--steps" "run.steps" steps,
    "--eval-every" "run.eval_every" eval_every,
    "--save-every" "run.save_every" save_every,
    "--keep" "run.keep" keep,
    "--seed" "run.seed" seed,
    "--trace-steps" "run.trace_steps" trace_steps,
    "--watchdog" "run.watchdog" watchdog,
    "--dtype" "run.dtype" dtype,
    ;
    ("--no-shuffle", "data.shuffle", |s| s.no_shuffle.then_some("false")),
    ("--tf32", "run.tf32", |s| s.tf32.then_some("true")),
    ("--no-cuda-graphs", "run.cuda_graphs", |s| s.no_cuda_graphs.then_some("false")),
    ("--cuda-graphs", "run.cuda_graphs", |s| s.cuda_graphs.then_some("true")),
];

/// The command that runs: messages name only its flags.
static COMMAND: OnceLock<clap::Command> = OnceLock::new();

/// Notes the command that runs.
pub fn set_command(command: clap::Command) {
    // A process runs one command.
    let _ = COMMAND.set(command);
}

/// Whether the command that runs has a flag.
pub fn has_flag(flag: &str) -> bool {
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
        Some(flag @ ("--no-shuffle" | "--no-cuda-graphs")) if value == "false" => flag.to_owned(),
        Some("--tf32") if value == "true" => "--tf32".to_owned(),
        Some("--no-shuffle" | "--no-cuda-graphs" | "--tf32") | None => {
            format!("--set {key}={value}")
        }
        // A value that begins with a dash would be read as a flag.
        Some(flag) if value.trim_start_matches('\'').starts_with('-') => {
            format!("{flag}={value}")
        }
        Some(flag) => format!("{flag} {value}"),
    }
}

/// The key that a flag of another command sets.
pub fn key_of(flag: &str) -> Option<&'static str> {
    let found = KEY_FLAGS.iter().find(|(other, ..)| *other == flag);
    found.map(|(_, key, _)| *key)
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
                words.push(flag_for(key, &quoted(text)));
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
            let place = match text {
                // Of a flag without a value.
                "true" | "false" => (*flag).to_owned(),
                _ => format!("{flag} {text}"),
            };
            Some(Setting::text(place, *key, text))
        })
    }
}

impl From<Workers> for Settings {
    fn from(workers: Workers) -> Self {
        let Workers {
            stages,
            devices,
            partition,
            threads,
            adapter,
        } = workers;
        Self {
            stages,
            devices,
            partition,
            threads,
            adapter,
            ..Self::default()
        }
    }
}
