//! The vocabulary and the dataset of a configuration.

use std::path::Path;

use gpipe_data::{
    AUTO, DIGITS, Dataset, FoundVocabulary, HeldOut, ImageOptions, SYNTHETIC, SampleOptions,
    Vocabulary, class_names, find_vocabulary, is_chats,
};

use crate::config::TrainConfig;
use crate::error::{Error, Result, one_line};
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
    with_chat_template(config, choose_vocabulary(choice, folder, known)?)
}

/// The vocabulary with the chat template of its tokenizer, where the source is of conversations.
pub(crate) fn with_chat_template(
    config: &TrainConfig,
    found: FoundVocabulary,
) -> Result<FoundVocabulary> {
    let Some(file) = found
        .file
        .as_deref()
        .filter(|_| is_chats(&config.data.source))
    else {
        return Ok(found);
    };
    let Some(template) = gpipe_hf::chat_template(file)? else {
        return Ok(found);
    };
    let vocabulary = found
        .vocabulary
        .with_chat_template(&template.text, template.special)
        .map_err(|error| {
            Error::invalid(format!(
                "{}: its chat template {error}: put another one into chat_template.jinja beside a tokenizer.json",
                file.display()
            ))
        })?;
    Ok(FoundVocabulary {
        vocabulary,
        ..found
    })
}

/// The tokens that end a text: by `eos_token_id` of the model's `config.json`, or the end of a line for an
/// encoder-decoder, which ends sources too.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if the file cannot be read.
pub fn end_tokens(config: &TrainConfig, vocabulary: &Vocabulary) -> Result<Vec<u32>> {
    if config.model.has_targets() {
        return Ok(vocabulary.encode(b"\n".to_vec(), 1, "the end of a line")?);
    }
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

/// The tokens of the beginning of a text, or of a whole source for an encoder-decoder, whose end may have its line end.
/// `origin` begins the message of an error: where the text comes from.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if the vocabulary has no tokens for it; [`Error::Invalid`] for a source that is empty
/// or has several lines.
pub fn prompt_tokens(
    config: &TrainConfig,
    vocabulary: &Vocabulary,
    text: &str,
    origin: &str,
) -> Result<Vec<u32>> {
    if !config.model.has_targets() {
        return Ok(vocabulary.encode(text.into(), 1, origin)?);
    }
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    // No row of pairs has such a source.
    if line.is_empty() || line.contains('\n') {
        let name = &config.model.name;
        return Err(Error::invalid(format!(
            "{origin}: the model {name} decodes the target of one line: give a line of text, each by itself"
        )));
    }
    let mut tokens = vocabulary.encode(line.into(), 1, origin)?;
    tokens.extend(end_tokens(config, vocabulary)?);
    Ok(tokens)
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
        Some(folder) => {
            // A checkpoint has the tokenizer of its run: without one, the run has read bytes, whatever the vocabulary.
            let known = match is_of_checkpoint(folder) {
                true => 0,
                false => known,
            };
            gpipe_hf::tokenizer_file(folder, known)?
        }
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

/// Whether this folder is that of the model in a checkpoint.
fn is_of_checkpoint(model: &Path) -> bool {
    model.ends_with(gpipe_checkpoint::MODEL)
        && model.with_file_name(gpipe_checkpoint::CONFIG).is_file()
}

/// The configured samples; the last tenth is held out if the run evaluates.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if the source cannot be read or is too short.
pub fn dataset(config: &TrainConfig, vocabulary: &Vocabulary) -> Result<Dataset> {
    let names = trained_classes(config, config.model.folder())?;
    training_dataset(config, vocabulary, names)
}

/// [`dataset`] with classes of these names.
pub(crate) fn training_dataset(
    config: &TrainConfig,
    vocabulary: &Vocabulary,
    names: Vec<String>,
) -> Result<Dataset> {
    let held_out = match config.run.eval_every.get() {
        0 => HeldOut::Nothing,
        _ => HeldOut::LastTenth,
    };
    let options = options(config, held_out, names)?;
    Ok(Dataset::open(&options, vocabulary)?)
}

/// The names of the classes that training learns, by number: those of the model in `folder` if they are all of the data's,
/// else those of the data. Empty where the data has no names.
pub(crate) fn trained_classes(config: &TrainConfig, folder: Option<&Path>) -> Result<Vec<String>> {
    let source = &*config.data.source;
    let has_names = config.model.images().is_some() && !config.learns_masks();
    if !has_names || [SYNTHETIC, DIGITS].contains(&source) {
        return Ok(Vec::new());
    }
    let (found, known) = (class_names(source)?, known_classes(folder)?);
    match found.iter().all(|name| known.contains(name)) {
        true => Ok(known),
        false => Ok(found),
    }
}

/// The names of the classes that an evaluation is of, by number: those of the model, or of the data where it says none.
pub(crate) fn evaluated_names(config: &TrainConfig) -> Result<Vec<String>> {
    match known_classes(config.model.folder())? {
        known if known.is_empty() => trained_classes(config, None),
        known => Ok(known),
    }
}

/// The names of the classes of the model in a folder, by number; empty if it says none.
pub(crate) fn known_classes(folder: Option<&Path>) -> Result<Vec<String>> {
    let described = folder.map(gpipe_hf::read_config).transpose()?;
    Ok(described.map_or(Vec::new(), |of| gpipe_hf::class_names(&of.ids)))
}

/// The configured samples, all held out: for evaluation only.
///
/// # Errors
/// As [`dataset`].
pub fn held_out_dataset(config: &TrainConfig, vocabulary: &Vocabulary) -> Result<Dataset> {
    let names = known_classes(config.model.folder())?;
    let options = options(config, HeldOut::Everything, names)?;
    Ok(Dataset::open(&options, vocabulary)?)
}

/// What training would warn of in the data of a run, a line each, by names and the beginnings of texts.
///
/// # Errors
/// Why training would refuse the data, in one line.
pub fn data_warnings(config: &TrainConfig) -> std::result::Result<Vec<String>, String> {
    // A plan may be of a model alone.
    let target = config.data.target.as_deref().unwrap_or_default();
    if config.model.has_targets() && target.is_empty() {
        return Ok(Vec::new());
    }
    let survey = || {
        let names = trained_classes(config, config.model.folder())?;
        let options = options(config, HeldOut::Nothing, names)?;
        Ok::<_, Error>(Dataset::survey(&options)?)
    };
    survey().map_err(|fault| one_line(&fault))
}

fn options(config: &TrainConfig, held_out: HeldOut, names: Vec<String>) -> Result<SampleOptions> {
    let target = config.data.target.clone().filter(|name| !name.is_empty());
    if config.model.has_targets() && target.is_none() {
        return Err(Error::invalid(format!(
            "the model {} learns from pairs of lines: name the text of the sources with `data.source`, and that of \
             the targets with `data.target`",
            config.model.name
        )));
    }
    Ok(SampleOptions {
        target,
        source: config.data.source.clone(),
        seq_len: config.data.seq_len.get(),
        batch_size: config.data.batch_size.get(),
        shuffle: config.data.shuffle,
        seed: config.run.seed.u64(),
        held_out,
        vocab: config.model.vocab().unwrap_or(usize::MAX),
        threads: config.pipeline.threads.get(),
        memory: machine::free_memory(),
        image: image_options(config, names),
    })
}

/// The images that the configured model takes, with classes of these names; `None` for one that takes none, or the pixels of
/// digits as a row.
pub(crate) fn image_options(config: &TrainConfig, names: Vec<String>) -> Option<ImageOptions> {
    let (keys, size) = config.model.images().zip(config.data.image_size)?;
    Some(ImageOptions {
        size: size.get(),
        channels: keys.channels.get(),
        classes: keys.classes.get(),
        masks: config.learns_masks(),
        names,
    })
}
