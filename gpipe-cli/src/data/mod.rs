//! Text becomes bytes, bytes are tokens, and the batch of a step is a function of (seed, step).

mod feed;
mod order;
mod samples;
mod source;
mod speaker;

pub use feed::{evaluation, training};
pub use samples::Samples;
pub use speaker::Speaker;

use crate::fail::Result;

/// The tokens of the text of this name: its bytes.
pub fn tokens(source: &str) -> Result<Vec<u32>> {
    Ok(source::read(source)?.into_iter().map(u32::from).collect())
}
