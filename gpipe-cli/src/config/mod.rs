//! What was typed, and what it means: one configuration, every key of which has a value.
//!
//! ```text
//! defaults of the model ◄ file (--config) ◄ --set ◄ flags  ─►  Config  ─►  config.toml of the run
//! ```

mod defaults;
mod devices;
mod entry;
mod keys;
mod numbers;
mod order;
mod origin;
mod presets;
mod resolve;
mod sense;
#[cfg(test)]
mod tests;
mod trace_steps;
mod values;
mod watchdog;
mod widths;

use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

pub use devices::Devices;
pub use entry::text;
use numbers::{Amount, Blocks, Count, Fraction, Seed, Size, Threads};
pub use order::Order;
pub use presets::PERCEPTRON;
pub use resolve::{resolve, resolve_text};
pub use trace_steps::TraceSteps;
pub use values::{Cut, Memory};
use values::{GeluForm, Named};
use watchdog::Watchdog;
pub use widths::Widths;

use gpipe_layers::{CostModel, Decay, LearningRate, LrSchedule};
use gpipe_remat::Policy;
use gpipe_tensor::Precision;

/// All that decides a run's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is trained.
    pub model: Model,
    /// On what.
    pub data: Data,
    /// How it is spread over workers.
    pub pipeline: Pipeline,
    /// How parameters follow gradients.
    pub optimizer: Optimizer,
    /// How long, and what is written.
    pub run: Run,
}

/// The section `[model]`: of a GPT, or of a perceptron, which has hidden layers and none of the keys
/// from `blocks` to `layer_norm_eps`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Where the defaults come from: one of the models by name, or a folder with one.
    pub name: String,
    /// Transformer blocks.
    pub blocks: Blocks,
    /// Attention heads of a block.
    pub heads: Size,
    /// Width of the residual stream.
    pub width: Size,
    /// Tokens that the model knows; bytes need 256.
    pub vocab: Size,
    /// Positions that the model knows, at least the tokens of a sample.
    pub context: Size,
    /// Whether the head uses the token embedding.
    pub tied: bool,
    /// The form of GELU.
    pub gelu: Named<GeluForm>,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: Amount,
    /// Widths of the hidden layers of a perceptron.
    pub hidden: Option<Named<Widths>>,
    /// Probability of dropping an activation.
    pub dropout: Fraction,
}

/// The section `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// `cicero`, a file or a folder.
    pub source: String,
    /// `auto`, `bytes` or a file.
    pub tokenizer: String,
    /// Tokens of a sample.
    pub seq_len: Size,
    /// Samples of a step.
    pub batch_size: Size,
    /// Whether each epoch has its own order.
    pub shuffle: bool,
}

/// The section `[pipeline]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Stages.
    pub stages: Size,
    /// Their workers.
    pub devices: Named<Devices>,
    /// Micro-batches of a batch.
    pub micro_batches: Size,
    /// Order of work.
    pub schedule: Named<Order>,
    /// How layers are cut.
    pub partition: Named<Cut>,
    /// What a layer costs.
    pub cost_model: Named<CostModel>,
    /// What is kept from forward to backward.
    pub remat: Named<Policy>,
    /// Threads in all.
    pub threads: Threads,
    /// What a worker may hold.
    pub memory: Named<Memory>,
}

/// The section `[optimizer]`: AdamW.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// Learning rate.
    pub lr: Amount,
    /// How it changes.
    pub lr_schedule: Named<LrSchedule>,
    /// Steps in which it grows.
    pub warmup_steps: Count,
    /// Decoupled weight decay.
    pub weight_decay: Amount,
    /// Which parameters decay.
    pub decay: Named<Decay>,
    /// Memory of the first moment.
    pub beta1: Fraction,
    /// Memory of the second moment.
    pub beta2: Fraction,
    /// Added to the root of the second moment.
    pub eps: Amount,
    /// Largest norm of all gradients together; 0 is off.
    pub clip_norm: Amount,
}

/// The section `[run]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Training steps.
    pub steps: Size,
    /// Steps from one evaluation to the next; 0 is never.
    pub eval_every: Count,
    /// Steps from one checkpoint to the next; 0 is only at the end.
    pub save_every: Count,
    /// Checkpoints that are kept besides the best; 0 saves none.
    pub keep: Count,
    /// Decides initial values, dropout and the order of samples.
    pub seed: Seed,
    /// Steps whose timelines are kept.
    pub trace_steps: Named<TraceSteps>,
    /// How long a step may take.
    pub watchdog: Named<Watchdog>,
    /// What matrix products multiply.
    pub dtype: Named<Precision>,
    /// Whether products of floats on CUDA devices round them to TF32.
    pub tf32: bool,
}

/// Only the keys that the model has.
impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            name,
            blocks,
            heads,
            width,
            vocab,
            context,
            tied,
            gelu,
            layer_norm_eps,
            hidden,
            dropout,
        } = self;
        let mut keys = serializer.serialize_map(None)?;
        keys.serialize_entry("name", name)?;
        if let Some(hidden) = hidden {
            keys.serialize_entry("hidden", hidden)?;
        } else {
            keys.serialize_entry("blocks", blocks)?;
            keys.serialize_entry("heads", heads)?;
            keys.serialize_entry("width", width)?;
            keys.serialize_entry("vocab", vocab)?;
            keys.serialize_entry("context", context)?;
            keys.serialize_entry("tied", tied)?;
            keys.serialize_entry("gelu", gelu)?;
            keys.serialize_entry("layer_norm_eps", layer_norm_eps)?;
        }
        keys.serialize_entry("dropout", dropout)?;
        keys.end()
    }
}

impl Model {
    /// Whether images are classified, not text continued.
    pub fn classifies(&self) -> bool {
        self.hidden.is_some()
    }

    /// The widest matrices of the model have about so many rows.
    pub fn widest(&self) -> usize {
        match &self.hidden {
            Some(hidden) => hidden.get().iter().copied().max().unwrap_or(1),
            None => self.width.get(),
        }
    }

    /// What is counted, for one and for many: a token or an image.
    pub fn unit(&self) -> [&'static str; 2] {
        match self.classifies() {
            true => ["img", "images"],
            false => ["tok", "tokens"],
        }
    }

    /// The folder that the model comes from, unless it is one of those by name.
    pub fn folder(&self) -> Option<&Path> {
        let named = presets::NAMES.contains(&self.name.as_str());
        (!named).then(|| Path::new(&self.name))
    }
}

impl Pipeline {
    /// The same batches in one stage, on one thread, that keeps everything: what `gpipe verify`
    /// compares with.
    pub fn single(&self) -> Result<Self, String> {
        Ok(Self {
            stages: Size::try_from(1)?,
            devices: Named::try_from(self.devices.first().to_string())?,
            schedule: Named::try_from("gpipe".to_owned())?,
            partition: Named::try_from("balance".to_owned())?,
            remat: Named::try_from("keep".to_owned())?,
            threads: Threads::try_from(1)?,
            memory: Named::try_from("unlimited".to_owned())?,
            ..self.clone()
        })
    }
}

/// The cosine ends at this share of the peak.
const FLOOR: f64 = 0.1;

impl Config {
    /// The learning rate, by steps from 0.
    pub fn learning_rate(&self) -> LearningRate {
        let optimizer = &self.optimizer;
        let peak = optimizer.lr.get();
        LearningRate {
            schedule: *optimizer.lr_schedule,
            peak,
            floor: FLOOR * peak,
            warmup: optimizer.warmup_steps.u64(),
            steps: self.run.steps.u64(),
        }
    }

    /// The file from which the same run can be started again.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let heading = concat!(
            "# gpipe ",
            env!("CARGO_PKG_VERSION"),
            ": all keys of this run\n\n"
        );
        Ok(heading.to_owned() + &toml::to_string(self)?)
    }
}
