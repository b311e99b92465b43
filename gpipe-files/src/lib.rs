#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod read;
mod write;

pub use error::{Error, Fault, Result};
pub use read::{Links, open_options, open_regular, read_capped};
pub use write::{
    append, check_writable, create_new, make_folder, remove_if_exists, replace, replace_durably,
    replace_with, separate, sync_folder,
};
