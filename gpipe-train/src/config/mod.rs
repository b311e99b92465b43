//! What was asked for, and what it means: one configuration, every key of which has a value.
//!
//! ```text
//! defaults of the model ◄ file ◄ settings ◄ more settings  ─►  TrainConfig  ─►  config.toml of the run
//! ```
//!
//! The layers are read here and not by a library for layered configuration: an error names the flag or
//! the line of the file that a value came from, and a key may replace another one of an earlier layer
//! (a list of workers the number of stages), which such libraries do not know.

mod defaults;
mod devices;
mod entry;
mod keys;
mod model;
mod model_defaults;
mod numbers;
mod overrides;
mod presets;
mod schedule;
#[cfg(test)]
mod tests;
mod trace_steps;
mod validate;
mod values;
mod watchdog;
mod widths;

use serde::{Deserialize, Serialize};

use gpipe_layers::{CostModel, Decay, LearningRate, LrSchedule};
use gpipe_remat::Policy;
use gpipe_tensor::{InstructionSet, Precision};

pub use devices::Devices;
pub use model::{Family, GptKeys, MlpKeys, Model};
pub use numbers::{Amount, Blocks, Count, Fraction, Seed, Size, Threads, Whole};
pub use overrides::{Overrides, Setting};
pub use presets::NAMES as MODEL_NAMES;
pub use schedule::ScheduleChoice;
pub use trace_steps::TraceSteps;
pub use values::{Cut, GeluForm, Memory, Named};
pub use watchdog::Watchdog;
pub use widths::Widths;

use crate::error::{Error, Result};

/// All that decides a run's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
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
    pub schedule: Named<ScheduleChoice>,
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
    /// The most capable instructions that products on processors use. Left out of files where it is
    /// `best`: earlier versions do not know it.
    #[serde(default = "best_instructions", skip_serializing_if = "are_best")]
    pub instruction_set: Named<InstructionSet>,
    /// Whether products of floats on CUDA devices round them to TF32.
    pub tf32: bool,
}

fn best_instructions() -> Named<InstructionSet> {
    Named::of(InstructionSet::Best)
}

fn are_best(instructions: &Named<InstructionSet>) -> bool {
    **instructions == InstructionSet::Best
}

impl Pipeline {
    /// The same batches in one stage, on one thread, that keeps everything: what
    /// [`verify`](crate::verify::verify) compares with.
    ///
    /// # Errors
    /// None in practice: the numbers are in range.
    pub fn single(&self) -> std::result::Result<Self, String> {
        Ok(Self {
            stages: Size::try_from(1)?,
            devices: Named::of(Devices::bare(self.devices.first())),
            schedule: Named::of(ScheduleChoice::Gpipe),
            partition: Named::of(Cut::Balance),
            remat: Named::of(Policy::Keep),
            threads: Threads::try_from(1)?,
            memory: Named::of(Memory::UNLIMITED),
            ..self.clone()
        })
    }
}

/// The cosine ends at this share of the peak.
const FLOOR: f64 = 0.1;

impl TrainConfig {
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
    ///
    /// # Errors
    /// [`Error::Run`] if it cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        let heading = concat!(
            "# gpipe ",
            env!("CARGO_PKG_VERSION"),
            ": all keys of this run\n\n"
        );
        Ok(heading.to_owned() + &toml::to_string(self).map_err(Error::run)?)
    }
}
