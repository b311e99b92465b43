//! The configuration of a run: layers of settings, resolved to a value for every key.
//!
//! ```text
//! defaults of the model ◄ file ◄ settings ◄ more settings  ─►  TrainConfig  ─►  config.toml of the run
//! ```
//!
//! No library for layered configuration is used: errors name the flag or the line of the file that a
//! value came from, and a key may remove another key of an earlier layer (a list of workers the number
//! of stages), which such libraries do not support.

mod defaults;
mod devices;
mod entry;
mod fixed;
mod keys;
mod lora;
mod loss_target;
mod model;
mod model_defaults;
mod model_sections;
mod nccl_use;
mod numbers;
mod optimizer_name;
mod overrides;
mod parameter_pattern;
mod preset_values;
mod presets;
mod schedule;
mod seq2seq_preset;
#[cfg(test)]
mod tests;
mod trace_steps;
mod validate;
mod values;
mod watchdog;
mod widths;

use serde::{Deserialize, Serialize};

use gpipe_layers::{CostModel, Decay, LearningRate, Loss, LrSchedule};
use gpipe_partition::CutRule;
use gpipe_remat::Policy;
use gpipe_report::numbers::counted;
use gpipe_sched::ScheduleKind;
use gpipe_tensor::{InstructionSet, Precision};

pub use devices::Devices;
pub use fixed::FixedKeys;
pub use lora::Lora;
pub use loss_target::LossTarget;
pub use model::{Family, GptKeys, ImageKeys, LlamaKeys, MlpKeys, Model, Seq2SeqKeys};
pub use nccl_use::NcclUse;
pub use numbers::{Amount, Blocks, Count, Fraction, Seed, Size, Threads, Whole};
pub use optimizer_name::OptimizerName;
pub use overrides::{Overrides, Setting};
pub use parameter_pattern::ParameterPattern;
pub use presets::NAMES as MODEL_NAMES;
pub(crate) use presets::is_name as is_preset_name;
pub use schedule::ScheduleChoice;
pub use trace_steps::TraceSteps;
pub use values::{GeluForm, Memory, Named};
pub use watchdog::Watchdog;
pub use widths::Widths;

use crate::error::{Error, Result};

/// The complete configuration of a run, as in its `config.toml`.
///
/// Values are valid by their types; [`Overrides::resolve`] also checks them against each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TrainConfig {
    /// The model.
    pub model: Model,
    /// The training data.
    pub data: Data,
    /// Stages, workers and schedule.
    pub pipeline: Pipeline,
    /// The optimizer and the learning rate.
    pub optimizer: Optimizer,
    /// Adapters of linear layers.
    #[serde(default, skip_serializing_if = "Lora::is_default")]
    pub lora: Lora,
    /// Duration, evaluation, checkpoints and numerics.
    pub run: Run,
}

/// The section `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Data {
    /// The built-in text `cicero`, the built-in images `digits`, a text file or a folder of text files.
    pub source: String,
    /// A text whose lines are the targets of those of the source; only with an encoder-decoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `auto` (of the model), `bytes`, or a `tokenizer.json`.
    pub tokenizer: String,
    /// Tokens per sample.
    pub seq_len: Size,
    /// Height and width of images in pixels; only with a network for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_size: Option<Size>,
    /// The target of the loss; only with a network for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_target: Option<Named<LossTarget>>,
    /// Samples per step.
    pub batch_size: Size,
    /// Whether samples are shuffled in each epoch.
    pub shuffle: bool,
}

/// The section `[pipeline]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Pipeline {
    /// The number of stages.
    pub stages: Size,
    /// The devices of the workers.
    pub devices: Named<Devices>,
    /// The number of workers where they were listed, of each rank; in files the list may be a bare name.
    #[serde(skip)]
    pub(crate) listed: Option<u64>,
    /// Micro-batches per batch.
    pub micro_batches: Size,
    /// Groups of micro-batches: gradients and losses are summed inside each, and then over the groups. Omitted
    /// from files where it is 1, since earlier versions do not know the key.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub groups: Size,
    /// Replicas of the pipeline, each on as many of the ranks, with as many groups of micro-batches. A table of actions is
    /// that of each. Omitted from
    /// files where it is 1, since earlier versions do not know the key.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub replicas: Size,
    /// 1: replicas divide the optimizer states among them (ZeRO's first stage); 0: each has all. Omitted from files
    /// where it is 0, since earlier versions do not know the key.
    #[serde(default = "none", skip_serializing_if = "is_none")]
    pub zero: Count,
    /// Number of layers before the pipeline, the first of the model, which run on all samples of a group of
    /// micro-batches at once. Omitted from files where it is 0, since earlier versions do not know the key.
    #[serde(default = "none", skip_serializing_if = "is_none")]
    pub before: Count,
    /// The order of actions on each worker.
    pub schedule: Named<ScheduleChoice>,
    /// The rule by which layers are cut into stages.
    pub partition: Named<CutRule>,
    /// The cost model that the cut balances.
    pub cost_model: Named<CostModel>,
    /// The activations kept from forward to backward pass; others are recomputed.
    pub remat: Named<Policy>,
    /// CPU threads, shared by all workers.
    pub threads: Threads,
    /// The memory limit of each worker.
    pub memory: Named<Memory>,
}

/// The section `[optimizer]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Optimizer {
    /// The algorithm. It and the keys of others than AdamW are omitted from files where they have their defaults,
    /// since earlier versions do not know them.
    #[serde(
        default = "OptimizerName::adamw",
        skip_serializing_if = "OptimizerName::is_adamw"
    )]
    pub name: Named<OptimizerName>,
    /// Peak learning rate.
    pub lr: Amount,
    /// The schedule of the learning rate.
    pub lr_schedule: Named<LrSchedule>,
    /// Steps of linear warm-up.
    pub warmup_steps: Count,
    /// Weight decay: decoupled in AdamW, added to the gradient in others.
    pub weight_decay: Amount,
    /// The parameters subject to weight decay.
    pub decay: Named<Decay>,
    /// Decay rate of the first moment.
    pub beta1: Fraction,
    /// Decay rate of the second moment.
    pub beta2: Fraction,
    /// Added to the root of the second moment, in RMSProp to that of the mean square.
    pub eps: Amount,
    /// Decay rate of RMSProp's mean square.
    #[serde(default = "alpha", skip_serializing_if = "is_alpha")]
    pub alpha: Fraction,
    /// Factor of the previous velocity of SGD and RMSProp; 0 keeps none.
    #[serde(default = "Fraction::zero", skip_serializing_if = "Fraction::is_zero")]
    pub momentum: Fraction,
    /// Whether SGD takes Nesterov's step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nesterov: bool,
    /// Share of the probability that the wanted distribution gives to other classes than the target.
    #[serde(default = "Fraction::zero", skip_serializing_if = "Fraction::is_zero")]
    pub label_smoothing: Fraction,
    /// Maximum global gradient norm; 0 disables clipping.
    pub clip_norm: Amount,
    /// Parameters that are not trained: they have no gradient and no optimizer state. Omitted from files
    /// where it is empty, since earlier versions do not know the key.
    #[serde(default = "no_parameters", skip_serializing_if = "names_none")]
    pub freeze: Named<ParameterPattern>,
}

/// The section `[run]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Run {
    /// Training steps.
    pub steps: Size,
    /// Steps between evaluations; 0 disables them.
    pub eval_every: Count,
    /// Steps between checkpoints; 0 saves only at the end, when stopped and at the best evaluation.
    pub save_every: Count,
    /// Newest checkpoints kept besides the best; 0 saves none.
    pub keep: Count,
    /// The seed of initial values, dropout and the order of samples.
    pub seed: Seed,
    /// Steps whose timelines are kept.
    pub trace_steps: Named<TraceSteps>,
    /// The time limit of a step.
    pub watchdog: Named<Watchdog>,
    /// The precision of matrix products.
    pub dtype: Named<Precision>,
    /// The most capable instruction set of matrix products on CPUs. Omitted from files where it is
    /// `best`, since earlier versions do not know the key.
    #[serde(default = "best_instructions", skip_serializing_if = "is_best")]
    pub instruction_set: Named<InstructionSet>,
    /// Whether `f32` matrix products on CUDA devices use TF32.
    pub tf32: bool,
    /// Whether what CUDA devices do in an action of a step is asked of them as CUDA graphs; of no effect on others. Omitted
    /// from files where it is on, since earlier versions do not know the key.
    #[serde(default = "on", skip_serializing_if = "is_on")]
    pub cuda_graphs: bool,
    /// What carries flows between GPUs of different ranks. Omitted from files where it is `auto`, since earlier
    /// versions do not know the key.
    #[serde(default = "auto_nccl", skip_serializing_if = "is_auto")]
    pub nccl: Named<NcclUse>,
}

fn auto_nccl() -> Named<NcclUse> {
    Named::of(NcclUse::Auto)
}

fn is_auto(nccl: &Named<NcclUse>) -> bool {
    **nccl == NcclUse::Auto
}

fn on() -> bool {
    true
}

fn is_on(switch: &bool) -> bool {
    *switch
}

fn one() -> Size {
    Size::ONE
}

fn none() -> Count {
    Count::ZERO
}

fn is_none(count: &Count) -> bool {
    count.get() == 0
}

fn is_one(size: &Size) -> bool {
    *size == Size::ONE
}

fn alpha() -> Fraction {
    Fraction::ALPHA
}

fn is_alpha(alpha: &Fraction) -> bool {
    *alpha == Fraction::ALPHA
}

fn no_parameters() -> Named<ParameterPattern> {
    Named::of(ParameterPattern::NONE)
}

fn names_none(pattern: &Named<ParameterPattern>) -> bool {
    pattern.is_none()
}

fn best_instructions() -> Named<InstructionSet> {
    Named::of(InstructionSet::Best)
}

fn is_best(instructions: &Named<InstructionSet>) -> bool {
    **instructions == InstructionSet::Best
}

impl Pipeline {
    /// The same batches in one stage on one thread, without rematerialization: the reference of
    /// [`Verification`](crate::verify::Verification).
    ///
    /// # Errors
    /// None in practice: the numbers are in range.
    pub fn single(&self) -> std::result::Result<Self, String> {
        Ok(Self {
            stages: Size::try_from(1)?,
            replicas: Size::try_from(1)?,
            zero: Count::ZERO,
            devices: Named::of(Devices::bare(self.devices.first())),
            schedule: Named::of(ScheduleChoice::Kind(ScheduleKind::Gpipe)),
            partition: Named::of(CutRule::Balance),
            remat: Named::of(Policy::Keep),
            threads: Threads::try_from(1)?,
            memory: Named::of(Memory::UNLIMITED),
            ..self.clone()
        })
    }
}

/// Final learning rate of the cosine schedule, as a fraction of the peak.
const FLOOR: f64 = 0.1;

impl TrainConfig {
    /// The learning rate as a function of the step, from 0.
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

    /// The batch of a step as text, such as `16 samples of 64 tokens`.
    pub fn batch(&self) -> String {
        let (samples, tokens) = (self.data.batch_size.u64(), self.data.seq_len.u64());
        if self.model.is_classifier() {
            return counted(samples, "image");
        }
        format!(
            "{} of {}",
            counted(samples, "sample"),
            counted(tokens, "token")
        )
    }

    /// The loss that training reduces.
    pub fn loss(&self) -> Loss {
        let target = self.data.loss_target.as_deref();
        let loss = target.map_or(Loss::CrossEntropy, |target| target.loss());
        match self.optimizer.label_smoothing.get() as f32 {
            smoothing if smoothing > 0.0 && loss == Loss::CrossEntropy => {
                Loss::SmoothedCrossEntropy(smoothing)
            }
            _ => loss,
        }
    }

    /// The size of a sample: tokens of a text, or height and width of an image.
    pub fn sample_size(&self) -> usize {
        self.data.image_size.unwrap_or(self.data.seq_len).get()
    }

    /// Whether the target of an image is a mask of its size.
    pub fn learns_masks(&self) -> bool {
        self.data.loss_target.as_deref() == Some(&LossTarget::Mask)
    }

    /// The configuration as a TOML file that [`Overrides::file`] reads back.
    ///
    /// # Errors
    /// [`Error::Run`] if a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        let heading = concat!(
            "# gpipe ",
            env!("CARGO_PKG_VERSION"),
            ": all keys of this run\n\n"
        );
        Ok(heading.to_owned() + &toml::to_string(self).map_err(Error::run)?)
    }
}
