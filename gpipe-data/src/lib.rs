#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batches;
mod dataset;
mod digits;
mod error;
mod options;
mod permutation;
mod source;
mod stream_decoder;
#[cfg(feature = "tokenizers")]
mod tokenizer;
#[cfg(not(feature = "tokenizers"))]
#[path = "no_tokenizer.rs"]
mod tokenizer;
mod tokens;
mod vocabulary;

pub use batches::{Batch, evaluation_batches, training_batch};
pub use dataset::Dataset;
pub use digits::{CLASSES, DIGITS, PIXELS};
pub use error::{Error, Result, SourceFault};
pub use options::{HeldOut, SampleOptions};
pub use permutation::Permutation;
pub use source::{CICERO, read_text};
pub use stream_decoder::StreamDecoder;
pub use vocabulary::{AUTO, BYTES, FoundVocabulary, Vocabulary, find_vocabulary, vocabulary_size};
