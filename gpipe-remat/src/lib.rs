#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod assembly;
mod budget;
mod builder;
mod bytes;
mod costs;
mod custom_loss;
mod diagnosis;
mod error;
mod left;
mod marks;
mod micro_batch;
mod non_finite;
mod optimizer_step;
mod param_state;
mod parameter_bytes;
pub mod planner;
mod policy;
mod predict;
mod run;
mod stage;
mod table;
mod times;
mod trainer;
mod training_loss;
mod update;
mod value_watch;

pub use assembly::{Assembled, Assembly, AssemblyError, ModelPipeline};
pub use builder::AssemblyBuilder;
pub use bytes::{Bytes, BytesError};
pub use costs::ModelCosts;
pub use custom_loss::CustomLoss;
pub use diagnosis::first_non_finite;
pub use error::{Error, Result};
pub use micro_batch::{batch_items, micro_batches};
pub use non_finite::{NonFinite, Pass, Value};
pub use optimizer_step::{StepStats, optimizer_step};
pub use param_state::{ParamState, copy_owned, put_states, put_values};
pub use parameter_bytes::{ParameterBytes, PlaceBytes};
pub use policy::Policy;
pub use predict::{StageMemory, predict_held, predict_memory};
pub use stage::LayerStage;
pub use table::{RematPlan, Retained, RetainedRun};
pub use times::{Times, Work, simulator_costs};
pub use trainer::{TrainStep, Trainer};
pub use training_loss::{OutputStage, Target, TrainingLoss};
pub use update::{apply_update, commit_mini_batch, gradient_norm, merge_ties, share_ties};

// Old names, until gpipe-cli has moved.
#[doc(hidden)]
mod old_names;
#[doc(hidden)]
pub use old_names::update;
#[doc(hidden)]
pub use param_state::ParamState as Owned;
#[doc(hidden)]
pub use parameter_bytes::{ParameterBytes as Weights, PlaceBytes as Weight};
#[doc(hidden)]
pub use table::{RematPlan as Table, Retained as Kept, RetainedRun as KeptRun};
#[doc(hidden)]
pub use training_loss::{OutputStage as OutputTurn, TrainingLoss as LossTurn};
