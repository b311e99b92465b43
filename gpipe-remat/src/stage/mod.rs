//! Stages of layers and their state during a step.

mod cache;
mod device_events;
mod group_gradients;
mod layer_stage;
mod run;
mod stash;
pub(crate) mod value_watch;
mod whole_batch;

pub use layer_stage::LayerStage;
