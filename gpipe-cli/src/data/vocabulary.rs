//! What tokens stand for: bytes, or what a `tokenizer.json` says.

use std::path::{Path, PathBuf};

use super::tokenizer::{BUILT_IN, Tokenizer};
use crate::fail::{Fail, Result};
use crate::model_folder;

/// What `--tokenizer` calls the tokenizer of the model's folder, and bytes where it has none.
pub const AUTO: &str = "auto";
/// What `--tokenizer` calls bytes.
pub const BYTES: &str = "bytes";

/// The file of a tokenizer, in the folder of a model.
pub const TOKENIZER: &str = "tokenizer.json";

/// The largest `tokenizer.json` that is read; those with a quarter of a million tokens have 20 MB.
const LARGEST: u64 = 32 << 20;

/// From text to tokens, and back.
pub enum Vocabulary {
    /// A token is a byte.
    Bytes,
    /// As a file says.
    File(Box<Tokenizer>),
}

/// A vocabulary, and where it was found.
pub struct Found {
    /// What tokens stand for.
    pub vocabulary: Vocabulary,
    /// The file that says so.
    pub file: Option<PathBuf>,
    /// What the user should know.
    pub warning: Option<String>,
}

impl Found {
    /// A token is a byte.
    pub fn bytes() -> Self {
        Self {
            vocabulary: Vocabulary::Bytes,
            file: None,
            warning: None,
        }
    }
}

/// The vocabulary that was chosen, [`AUTO`], [`BYTES`] or a file, for a model in this folder, if it is
/// in one, that knows so many tokens.
pub fn find(choice: &str, folder: Option<&Path>, known: usize) -> Result<Found> {
    let file = match choice {
        BYTES => None,
        AUTO => match folder {
            Some(folder) => of_folder(folder)?,
            None => None,
        },
        file => Some(PathBuf::from(file)),
    };
    let Some(file) = file else {
        return Ok(Found::bytes());
    };
    if !BUILT_IN && choice == AUTO && (256..=257).contains(&known) {
        let warning = format!(
            "{}: not read, as this build of gpipe-cli lacks the feature tokenizers: tokens are bytes",
            file.display()
        );
        let warning = Some(warning);
        return Ok(Found {
            warning,
            ..Found::bytes()
        });
    }
    let tokenizer = open(&file)?;
    if tokenizer.size() > known as u64 {
        return Err(Fail::asked(format!(
            "{}: its largest token is {}, but the model knows {known} (model.vocab, vocab_size): take the \
             tokenizer that belongs to the model, or --tokenizer {BYTES}",
            file.display(),
            tokenizer.size() - 1
        )));
    }
    Ok(Found {
        vocabulary: Vocabulary::File(Box::new(tokenizer)),
        file: Some(file),
        warning: None,
    })
}

/// How many tokens a model must know for this choice, if a file decides that.
pub fn size(choice: &str) -> Result<Option<u64>> {
    match choice {
        AUTO | BYTES => Ok(None),
        file => open(Path::new(file)).map(|tokenizer| Some(tokenizer.size())),
    }
}

/// The tokenizer in the folder of a model. One that only has the tables from which it could be made is
/// no model of bytes.
fn of_folder(folder: &Path) -> Result<Option<PathBuf>> {
    let there = |name: &str| folder.join(name).symlink_metadata().is_ok();
    if there(TOKENIZER) {
        return Ok(Some(folder.join(TOKENIZER)));
    }
    if there("vocab.json") || there("merges.txt") {
        return Err(Fail::asked(format!(
            "{}: it has vocab.json or merges.txt but no {TOKENIZER}: load its tokenizer with transformers \
             and save it there, or use --tokenizer {BYTES}",
            folder.display()
        )));
    }
    Ok(None)
}

fn open(file: &Path) -> Result<Tokenizer> {
    let mend = format!("name a {TOKENIZER}, or use --tokenizer {BYTES}");
    let bytes = model_folder::read(file, LARGEST, &mend)?;
    Tokenizer::parse(&bytes)
        .map_err(|fault| Fail::asked(format!("{}: {fault}: {mend}", file.display())))
}

impl Vocabulary {
    /// The tokens of a text, made by so many threads. `place` says where the text comes from.
    pub fn tokens(&self, text: Vec<u8>, threads: usize, place: &str) -> Result<Vec<u32>> {
        let tokenizer = match self {
            Self::Bytes => return Ok(text.into_iter().map(u32::from).collect()),
            Self::File(tokenizer) => tokenizer,
        };
        let fault = |fault: String| Fail::asked(format!("{place}: {fault}"));
        let text = String::from_utf8(text).map_err(|error| {
            fault(format!(
                "byte {} is no UTF-8 text, which the tokenizer reads: convert it, or use --tokenizer {BYTES}",
                error.utf8_error().valid_up_to()
            ))
        })?;
        tokenizer.encode(&text, threads).map_err(|error| {
            fault(format!(
                "the tokenizer cannot say it: {error}: use another text, or --tokenizer {BYTES}"
            ))
        })
    }

    /// The bytes that a token stands for, if it stands for the same ones everywhere.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            // A token that is no byte, of a model that knows more: no UTF-8 has this byte.
            Self::Bytes => Some(vec![u8::try_from(token).unwrap_or(0xFF)]),
            Self::File(tokenizer) => tokenizer.bytes(token),
        }
    }

    /// The text that some tokens are.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match self {
            Self::Bytes => {
                let bytes = tokens.iter().filter_map(|&token| self.bytes(token));
                let bytes: Vec<u8> = bytes.flatten().collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::File(tokenizer) => tokenizer.decode(tokens),
        }
    }
}
