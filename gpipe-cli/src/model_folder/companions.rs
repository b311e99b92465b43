//! What a folder holds besides sizes and weights, and what is handed on as it is.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{describe, file};
use crate::data::TOKENIZER;
use crate::fail::Result;

/// Files beside `tokenizer.json` from which `transformers` makes the same tokenizer.
const OF_TOKENIZER: [&str; 5] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
];

/// How `transformers` goes on from a prompt unless told.
const GENERATION: &str = "generation_config.json";

/// The largest of them that is read.
const LARGEST: u64 = 32 << 20;

const MEND: &str = "make it readable, or remove it";

/// Files and keys that training does not change. Clones share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Companions {
    /// By their names in the folder.
    pub files: Arc<Vec<(String, Vec<u8>)>>,
    /// Keys of `config.json`: which tokens begin, end and fill up a text.
    pub ids: Map<String, Value>,
}

impl Companions {
    /// Those in the folder that a model comes from, if it comes from one, with the tokenizer in a file,
    /// if it has one.
    pub fn read(folder: Option<&Path>, tokenizer: Option<&Path>) -> Result<Self> {
        let mut files = Vec::new();
        let mut add = |name: &str, path: &Path| -> Result<()> {
            if path.symlink_metadata().is_ok() {
                files.push((name.to_owned(), file::read(path, LARGEST, MEND)?));
            }
            Ok(())
        };
        if let Some(tokenizer) = tokenizer {
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
            add(GENERATION, &folder.join(GENERATION))?;
            ids = describe(folder)?.ids;
        }
        let files = Arc::new(files);
        Ok(Self { files, ids })
    }
}
