#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod assembly;
mod budget;
mod bytes;
mod costs;
mod error;
mod left;
mod marks;
mod micro_batch;
mod owned;
pub mod planner;
mod policy;
mod predict;
mod run;
mod stage;
mod table;
mod times;
mod turn;
mod update;
mod watch;
mod weights;

pub use assembly::{Assembled, Assembly, AssemblyError, ModelPipeline};
pub use bytes::{Bytes, BytesError};
pub use costs::ModelCosts;
pub use error::{Error, Result};
pub use micro_batch::micro_batches;
pub use owned::{Owned, copy_owned, put_states, put_values};
pub use policy::Policy;
pub use predict::{StageMemory, predict_held, predict_memory};
pub use stage::LayerStage;
pub use table::{Kept, KeptRun, Table};
pub use times::{Times, Work, simulator_costs};
pub use turn::{LossTurn, OutputTurn, Target};
pub use update::{gradient_norm, merge_ties, share_ties, update};
pub use watch::{NonFinite, Pass, Value, first_non_finite};
pub use weights::{Weight, Weights};
