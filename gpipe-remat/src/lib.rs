#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod assembly;
mod builder;
mod custom_loss;
mod cut;
mod diagnosis;
mod error;
mod extras;
#[cfg(feature = "cuda")]
mod gpu_channels;
#[cfg(feature = "cuda")]
mod gpu_flows;
mod lending;
mod memory;
mod micro_batch;
mod non_finite;
mod optimizer_step;
mod param_state;
mod parameters;
pub mod planner;
mod portals;
mod reach;
mod stage;
mod step_retry;
mod trainer;
mod training_loss;
mod update;
mod wire;
mod words;

pub use assembly::{Assembled, Assembly, AssemblyError, ModelPipeline};
pub use builder::AssemblyBuilder;
pub use custom_loss::CustomLoss;
pub use diagnosis::first_non_finite;
pub use error::{DoesNotFit, Error, Result};
pub use lending::{Answer, Lender, Lent, Others, copy_owned, lend_last, lend_owned};
pub use memory::{
    Bytes, BytesError, MessageBytes, ModelCosts, ParameterBytes, PlaceBytes, Policy, RematPlan,
    Retained, RetainedRun, StageMemory, StagePrices, predict_held, predict_memory,
    predict_messages,
};
pub use micro_batch::{batch_items, group_items, items_of_replica, micro_batches};
pub use non_finite::{NonFinite, Pass, Value};
pub use optimizer_step::{StepStats, optimizer_step};
pub use param_state::{NonFiniteState, ParamState, first_non_finite_state, put_states, put_values};
pub use planner::{Rates, Times, Work, simulator_costs};
pub use portals::Portals;
pub use reach::Passage;
pub use stage::{LayerStage, PortalTable};
pub use step_retry::step_with_retry;
pub use trainer::{TrainStep, Trainer};
pub use training_loss::{OutputStage, Target, TrainingLoss};
pub use update::{
    apply_update, commit_mini_batch, gradient_norm, merge_ties, share_ties, sum_replicas,
};
pub use wire::{Flows, Wire, WireCodec};
