//! Models where other tools keep them: a folder with `config.json`, `model.safetensors` and, if it
//! has one, `tokenizer.json`, as Hugging Face's `transformers` reads and writes it.
//!
//! Whatever is in such a folder may be wrong or hostile: sizes are checked against each other and
//! against the bytes that are there before anything large is allocated.

mod companions;
mod config_json;
mod file;
mod index;
mod place;
mod weights;

use std::path::Path;

use gpipe_tensor::{Tensor, safetensors};

use crate::config::Config;
use crate::fail::{Fail, Result};
pub use companions::Companions;
pub use config_json::{Architecture, Description, parse as parse_config};
pub use file::read;
pub use index::parse as parse_index;
pub use place::find;
pub use weights::{Weights, fill};

/// What the model is made of.
const CONFIG: &str = "config.json";
/// Its weights, in one file.
const WEIGHTS: &str = "model.safetensors";
/// Which file has which weights, where there are several.
const INDEX: &str = "model.safetensors.index.json";

/// The largest `config.json` that is read.
const LARGEST_CONFIG: u64 = 1 << 20;

/// What `config.json` in a folder says of the model.
pub fn describe(folder: &Path) -> Result<Description> {
    let path = folder.join(CONFIG);
    let bytes = read(&path, LARGEST_CONFIG, file::MEND)?;
    config_json::parse(&bytes).map_err(|fault| Fail::asked(format!("{}: {fault}", path.display())))
}

/// The files of such a folder, by the name that each has in it: the model that is configured, with
/// these values of its parameters by their global names, and its companions. A tied parameter is there
/// once.
pub fn files(
    config: &Config,
    params: &[(String, Tensor)],
    companions: &Companions,
) -> Result<Vec<(String, Vec<u8>)>> {
    let config_json = config_json::write(config, &companions.ids).map_err(Fail::Run)?;
    // Transformers opens no weights of which it is not told the framework.
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let weights = safetensors::save(params, &metadata).map_err(Fail::run)?;
    let mut files = vec![
        (CONFIG.to_owned(), config_json),
        (WEIGHTS.to_owned(), weights),
    ];
    files.extend(companions.files.iter().cloned());
    Ok(files)
}

#[cfg(test)]
mod tests;
