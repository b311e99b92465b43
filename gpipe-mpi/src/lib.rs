#![doc = include_str!("../README.md")]

mod api;
mod communication;
mod error;
mod launcher;
mod library;
mod messages;
mod pulse;
pub mod raw;
mod session;
mod traffic;

pub use communication::MpiTransport;
pub use error::Error;
pub use launcher::Launcher;
pub use library::{FoundLibrary, find};
