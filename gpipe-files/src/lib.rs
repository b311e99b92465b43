#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod read;
mod write;

pub use error::{Error, Fault, Result};
pub use read::{Links, open_regular, read_capped};
pub use write::{create_new, remove_if_exists, replace, sync_folder};
