#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batches;
mod chats;
mod dataset;
mod error;
mod folder_walk;
mod images;
mod options;
mod pairs;
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

pub use batches::{
    Batch, evaluation_batches, evaluation_batches_of_replica, training_batch,
    training_batch_of_groups, training_batch_of_replica,
};
pub use chats::is_chats;
pub use dataset::Dataset;
pub use error::{ChatFault, Error, PairFault, Result, SourceFault};
pub use images::{
    CLASSES, DIGITS, Draw, NamedPicture, PIXELS, PictureMask, PictureReader, SIDE, SYNTHETIC,
    ViewedPicture, class_names, count_classes, named_pictures,
};
pub use options::{HeldOut, ImageOptions, SampleOptions};
pub use permutation::Permutation;
pub use source::{CICERO, read_text};
pub use stream_decoder::StreamDecoder;
pub use vocabulary::{AUTO, BYTES, FoundVocabulary, Vocabulary, find_vocabulary, vocabulary_size};
