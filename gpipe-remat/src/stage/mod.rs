//! Stages of layers and their state during a step.

mod cache;
mod device_events;
mod exchange;
mod group_gradients;
mod layer_stage;
mod portal_table;
mod replica_sums;
mod run;
mod stash;
mod statistics;
pub(crate) mod value_watch;
mod whole_batch;

pub use layer_stage::LayerStage;
pub use portal_table::PortalTable;
