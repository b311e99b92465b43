//! Text becomes bytes, bytes are tokens; images come as they are; and the batch of a step is a function of (seed, step).

mod digits;
mod feed;
mod order;
mod samples;
mod source;
mod speaker;

pub use digits::{CLASSES, DIGITS, PIXELS};
pub use feed::{evaluation, training};
pub use samples::Samples;
pub use speaker::Speaker;

use crate::config::Config;
use crate::fail::Result;
use digits::Digits;

/// The samples that are configured.
pub fn samples(config: &Config) -> Result<Samples> {
    match config.model.classifies() {
        true => Samples::of_digits(Digits::load()?, config),
        false => Samples::new(tokens(&config.data.source)?, config),
    }
}

/// The tokens of the text of this name: its bytes.
pub fn tokens(source: &str) -> Result<Vec<u32>> {
    Ok(source::read(source)?.into_iter().map(u32::from).collect())
}
