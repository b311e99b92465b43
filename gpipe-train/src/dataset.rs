//! The vocabulary and the dataset of a configuration.

use std::path::Path;

use gpipe_data::{
    AUTO, Dataset, FoundVocabulary, HeldOut, ImageOptions, SampleOptions, Vocabulary,
    find_vocabulary,
};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
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
    choose_vocabulary(choice, folder, known)
}

/// The tokens that end a text, by `eos_token_id` of the model's `config.json`.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if the file cannot be read.
pub fn end_tokens(config: &TrainConfig) -> Result<Vec<u32>> {
    let Some(folder) = config.model.folder() else {
        return Ok(Vec::new());
    };
    let ids = gpipe_hf::Companions::read(Some(folder), None)?.ids;
    let ends = ids.get("eos_token_id").into_iter();
    // A token or a list of tokens.
    let ends = ends.flat_map(|id| id.as_array().map_or(vec![id], |all| all.iter().collect()));
    Ok(ends
        .filter_map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
        .collect())
}

/// The vocabulary of this choice for a model with its files in `folder`, or in a GGUF file, that knows `known`
/// tokens.
pub(crate) fn choose_vocabulary(
    choice: &str,
    folder: Option<&Path>,
    known: usize,
) -> Result<FoundVocabulary> {
    // The tokenizer among the files of the model counts for `auto` alone.
    let of_model = match folder.filter(|_| choice == AUTO) {
        Some(folder) => gpipe_hf::tokenizer_file(folder)?,
        None => None,
    };
    let Some(path) = of_model.as_deref().filter(|path| gpipe_hf::is_gguf(path)) else {
        return Ok(find_vocabulary(choice, of_model.as_deref(), known)?);
    };
    let vocabulary = Vocabulary::parse(&gpipe_hf::gguf_tokenizer(path)?).map_err(|error| {
        Error::invalid(format!(
            "{}: its tokenizer {error}: name a tokenizer.json with `data.tokenizer`",
            path.display()
        ))
    })?;
    if vocabulary.size() > known as u64 {
        let largest = vocabulary.size() - 1;
        let path = path.to_owned();
        return Err(gpipe_data::Error::ForeignTokenizer {
            largest,
            path,
            known,
        }
        .into());
    }
    Ok(FoundVocabulary {
        vocabulary,
        file: of_model,
        warning: None,
    })
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
                masks: false,
            }),
    }
}
