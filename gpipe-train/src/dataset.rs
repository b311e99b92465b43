//! The vocabulary and the dataset of a configuration.

use std::path::{Path, PathBuf};

use gpipe_data::{
    AUTO, Dataset, FoundVocabulary, HeldOut, ImageOptions, SampleOptions, Vocabulary,
    find_vocabulary,
};

use crate::config::TrainConfig;
use crate::error::Result;
use crate::machine;

/// The vocabulary of the configured model, with its files in `folder` if it has one; bytes for a model
/// without tokens.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if a tokenizer cannot be read or has more tokens than the model.
pub fn vocabulary(config: &TrainConfig, folder: Option<&Path>) -> Result<FoundVocabulary> {
    let Some(known) = config.model.vocab() else {
        return Ok(FoundVocabulary::bytes());
    };
    let choice = &config.data.tokenizer;
    let of_model = model_files_tokenizer(choice, folder)?;
    Ok(find_vocabulary(choice, of_model.as_deref(), known)?)
}

/// The tokenizer among the files of a model, if `data.tokenizer` is `auto`.
pub(crate) fn model_files_tokenizer(
    choice: &str,
    folder: Option<&Path>,
) -> Result<Option<PathBuf>> {
    match folder.filter(|_| choice == AUTO) {
        Some(folder) => Ok(gpipe_hf::tokenizer_file(folder)?),
        None => Ok(None),
    }
}

/// The configured samples; the last tenth is held out if the run evaluates.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if the source cannot be read or is too short.
pub fn dataset(config: &TrainConfig, vocabulary: &Vocabulary) -> Result<Dataset> {
    let held_out = match config.run.eval_every.get() {
        0 => HeldOut::Nothing,
        _ => HeldOut::LastTenth,
    };
    Ok(Dataset::open(&options(config, held_out), vocabulary)?)
}

/// The configured samples, all held out: for evaluation only.
///
/// # Errors
/// As [`dataset`].
pub fn held_out_dataset(config: &TrainConfig, vocabulary: &Vocabulary) -> Result<Dataset> {
    Ok(Dataset::open(
        &options(config, HeldOut::Everything),
        vocabulary,
    )?)
}

fn options(config: &TrainConfig, held_out: HeldOut) -> SampleOptions {
    SampleOptions {
        source: config.data.source.clone(),
        seq_len: config.data.seq_len.get(),
        batch_size: config.data.batch_size.get(),
        shuffle: config.data.shuffle,
        seed: config.run.seed.u64(),
        held_out,
        vocab: config.model.vocab().unwrap_or(usize::MAX),
        threads: config.pipeline.threads.get(),
        memory: machine::free_memory(),
        image: config
            .model
            .images()
            .zip(config.data.image_size)
            .map(|(keys, size)| ImageOptions {
                size: size.get(),
                channels: keys.channels.get(),
                classes: keys.classes.get(),
            }),
    }
}
