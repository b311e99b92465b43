#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod balance;
mod error;
mod histogram;
mod loads;
mod oracle;
mod partition;
mod placement;
mod rule;
pub mod search;

pub use balance::{balance, balance_by, balance_parts};
pub use error::{Error, Result};
pub use histogram::{histogram, histogram_assignment, lingvo_logged_costs};
pub use loads::Loads;
pub use partition::{Partition, explicit};
pub use rule::CutRule;
