#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cost;
mod error;
mod layer;
mod ledger;
pub mod lingvo;
mod param;

pub use cost::{Cost, Flow, Memory};
pub use error::{Error, Result};
pub use layer::{Cx, Layer, Pending, Saved};
pub use ledger::{Buffer, Buffers, Ledger, PendingBuffers, SavedBuffers};
pub use param::{Init, Kind, Param};
