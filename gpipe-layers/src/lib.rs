#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod check;
mod choice;
mod cost;
mod cost_model;
mod error;
mod init;
mod layer;
mod layer_cache;
mod layer_params;
pub mod layers;
mod learning_rate;
mod ledger;
pub mod lingvo;
mod lora_settings;
mod loss;
mod memory;
pub mod models;
mod optimizer;
mod optimizer_settings;
mod param;
mod pass_context;
mod sampling;
mod saved;
mod sum;
mod wiring;

pub use cost::{Cost, Flow, Inside};
pub use cost_model::CostModel;
pub use error::{Error, Result};
pub use gpipe_tensor::ops::Gelu;
pub use init::{ElementFn, Init};
pub use layer::Layer;
pub use layer_cache::LayerCache;
pub use layer_params::{compute_in, freeze, make, round_to_tf32, try_params};
pub use learning_rate::{LearningRate, LrSchedule};
pub use ledger::{Buffer, Buffers, Ledger, PendingBuffers, SavedBuffers};
pub use lora_settings::LoraSettings;
pub use loss::Loss;
pub use memory::{Memory, Origin, TensorSet};
pub use optimizer::{Decay, Optimizer, OptimizerKind, UpdateSettings, clip_factor};
pub use optimizer_settings::{AdamW, RmsProp, Sgd};
pub use param::{Kind, Param};
pub use pass_context::PassContext;
pub use sampling::{Choice, Sampling};
pub use saved::{Pending, Saved};
pub use wiring::Value;
