//! Text becomes bytes, bytes are tokens, and the batch of a step is a function of (seed, step).

mod feed;
mod order;
mod samples;
mod source;

pub use feed::{evaluation, training};
pub use samples::Samples;
pub use source::read;
