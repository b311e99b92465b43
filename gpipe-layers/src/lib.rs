#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod choice;
mod cost;
mod cost_model;
mod error;
mod layer;
pub mod layers;
mod learning_rate;
mod ledger;
pub mod lingvo;
mod loss;
pub mod models;
mod optimizer;
mod param;
mod sampling;

pub use cost::{Cost, Flow, Memory};
pub use cost_model::CostModel;
pub use error::{Error, Result};
pub use gpipe_tensor::ops::Gelu;
pub use layer::{Layer, PassContext, Pending, Saved};
pub use learning_rate::{LearningRate, LrSchedule};
pub use ledger::{Buffer, Buffers, Ledger, PendingBuffers, SavedBuffers};
pub use loss::Loss;
pub use optimizer::{Decay, Optimizer, OptimizerKind, clip_factor};
pub use param::{Init, Kind, Param, compute_in, make, try_params};
pub use sampling::{Choice, Sampling};

// Old names, until gpipe-cli has moved. (Also `Layer::last_grad`.)
#[doc(hidden)]
pub use layer::PassContext as Cx;
#[doc(hidden)]
pub use optimizer::OptimizerKind as Rule;
