//! Tensors that stages keep between forward and backward passes, and their bytes.

pub(crate) mod activations;
pub(crate) mod budget;
mod bytes;
mod messages;
pub(crate) mod model_costs;
mod parameter_bytes;
mod policy;
pub(crate) mod predict;
mod remat_plan;
pub(crate) mod replay;
mod retained;
mod stage_memory;
mod stage_prices;

pub use bytes::{Bytes, BytesError};
pub use messages::{MessageBytes, predict_messages};
pub use model_costs::ModelCosts;
pub(crate) use parameter_bytes::StateShards;
pub use parameter_bytes::{ParameterBytes, PlaceBytes};
pub use policy::Policy;
pub use predict::{predict_held, predict_memory};
pub use remat_plan::RematPlan;
pub use retained::{Retained, RetainedRun};
pub use stage_memory::StageMemory;
pub use stage_prices::StagePrices;
