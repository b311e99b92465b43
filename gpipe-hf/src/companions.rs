//! What a folder holds besides sizes and weights, and what is handed on as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpipe_files::{Links, read_capped};
use serde_json::{Map, Value};

use crate::config_json::read_config;
use crate::error::{Error, Result};
use crate::gguf::{is_gguf, tokenizer_files};
use crate::links::check_link;
use crate::names::{SETTINGS, SPECIAL_TOKENS, TEMPLATE, TOKENIZER};

/// Files beside `tokenizer.json` from which `transformers` makes the same tokenizer.
const OF_TOKENIZER: [&str; 6] = [
    SETTINGS,
    TEMPLATE,
    SPECIAL_TOKENS,
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
];

/// How `transformers` samples by default.
const GENERATION: &str = "generation_config.json";

/// Files that are there, in a folder without `tokenizer.json`, where the model has a tokenizer of another kind or another
/// part of one.
const OTHER_TOKENIZERS: [&str; 9] = [
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "tekken.json",
    "spiece.model",
    "vocab.txt",
    SETTINGS,
    SPECIAL_TOKENS,
    "added_tokens.json",
];

/// The most tokens of a model of bytes: 256 and a few special tokens, filled up to a multiple of 64.
const MOST_OF_BYTES: usize = 320;

/// The largest companion that is read.
const LARGEST: u64 = 32 << 20;

const MEND: &str = "make it readable, or remove it";

/// Files and keys that training does not change. Clones share the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Companions {
    /// By their names in the folder.
    pub files: Arc<Vec<(String, Vec<u8>)>>,
    /// Keys of `config.json`: which tokens begin, end and fill up a text, or what classes of images are called.
    pub ids: Map<String, Value>,
}

impl Companions {
    /// Reads those of a model: `folder` is where the model comes from, `tokenizer` the file of its
    /// tokenizer; either may be missing.
    ///
    /// # Errors
    /// If one of them is there and cannot be read, is longer than 32 MiB, or is a link out of the folder.
    pub fn read(folder: Option<&Path>, tokenizer: Option<&Path>) -> Result<Self> {
        let mut files = Vec::new();
        let mut add = |name: &str, path: &Path| -> Result<()> {
            if path.symlink_metadata().is_ok() {
                // The tokenizer itself is believed only after it was parsed; the text of the others is copied into every
                // checkpoint.
                if name != TOKENIZER {
                    check_link(path)?;
                }
                let bytes = read_capped(path, LARGEST, Links::Followed, MEND)?;
                files.push((name.to_owned(), bytes));
            }
            Ok(())
        };
        if let Some(tokenizer) = tokenizer.filter(|file| !is_gguf(file)) {
            add(TOKENIZER, tokenizer)?;
            // Files beside one of another name may belong to anything.
            if tokenizer.ends_with(TOKENIZER) {
                for name in OF_TOKENIZER {
                    add(name, &tokenizer.with_file_name(name))?;
                }
            }
        }
        let mut ids = Map::new();
        if let Some(folder) = folder {
            if !is_gguf(folder) {
                add(GENERATION, &folder.join(GENERATION))?;
            }
            ids = read_config(folder)?.ids;
        }
        if let Some(tokenizer) = tokenizer.filter(|file| is_gguf(file)) {
            files.extend(tokenizer_files(tokenizer)?);
        }
        let files = Arc::new(files);
        Ok(Self { files, ids })
    }
}

/// The `tokenizer.json` in the folder of a model that knows `known` tokens, if it has one, or the GGUF file itself; it is
/// not read. None for a model of bytes: one without files of a tokenizer, and with a vocabulary of bytes and a few
/// special tokens.
///
/// # Errors
/// If the tokenizer is of another kind, or missing: read as bytes, a text would be other tokens than those of training.
pub fn tokenizer_file(folder: &Path, known: usize) -> Result<Option<PathBuf>> {
    if is_gguf(folder) {
        return Ok(Some(folder.to_owned()));
    }
    let there = |name: &str| folder.join(name).symlink_metadata().is_ok();
    if there(TOKENIZER) {
        return Ok(Some(folder.join(TOKENIZER)));
    }
    let fault = match OTHER_TOKENIZERS.iter().find(|name| there(name)) {
        Some(name) => format!("it has {name} but no {TOKENIZER}"),
        None if known > MOST_OF_BYTES => {
            format!("it has no {TOKENIZER}, and its model knows {known} tokens, more than bytes")
        }
        None => return Ok(None),
    };
    Err(Error::Invalid {
        path: folder.to_owned(),
        fault: format!(
            "{fault}: put the {TOKENIZER} of the model there (`save_pretrained` of its `AutoTokenizer` in \
             transformers writes it), or use `data.tokenizer = bytes`"
        ),
    })
}
