//! A stage of layers at work.

mod device_events;
mod layer_stage;
mod run;
mod stash;
pub(crate) mod value_watch;

pub use layer_stage::LayerStage;
