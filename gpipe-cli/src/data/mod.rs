//! Text becomes tokens, which are bytes or what a tokenizer says; images come as they are; and the batch of a step is a function of (seed, step).

mod digits;
mod feed;
mod order;
mod samples;
mod source;
mod speaker;
#[cfg(feature = "tokenizers")]
mod tokenizer;
#[cfg(not(feature = "tokenizers"))]
#[path = "no_tokenizer.rs"]
mod tokenizer;
mod vocabulary;

pub use digits::{CLASSES, DIGITS, PIXELS};
pub use feed::{evaluation, training};
pub use samples::Samples;
pub use speaker::Speaker;
pub use tokenizer::Tokenizer;
pub use vocabulary::{AUTO, Found, TOKENIZER, Vocabulary, find as find_vocabulary, size};

use crate::config::Config;
use crate::fail::Result;
use digits::Digits;

/// The samples that are configured, in the tokens of a vocabulary.
pub fn samples(config: &Config, vocabulary: &Vocabulary) -> Result<Samples> {
    match config.model.classifies() {
        true => Samples::of_digits(Digits::load()?, config),
        false => Samples::new(tokens(config, vocabulary)?, config),
    }
}

/// The same, none of which is trained on: all are held out.
pub fn all_samples(config: &Config, vocabulary: &Vocabulary) -> Result<Samples> {
    match config.model.classifies() {
        true => Ok(Samples::of_all_digits(Digits::load()?, config)),
        false => Samples::of_all(tokens(config, vocabulary)?, config),
    }
}

/// The tokens of the text that is configured.
fn tokens(config: &Config, vocabulary: &Vocabulary) -> Result<Vec<u32>> {
    let (source, threads) = (&config.data.source, config.pipeline.threads.get());
    vocabulary.tokens(source::read(source)?, threads, &format!("--data {source}"))
}
