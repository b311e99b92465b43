//! The files of a model's folder.

use gpipe_layers::models::ModelConfig;
use gpipe_tensor::safetensors::{self, FileContents, Stored};

use crate::adapter::is_adapter;
use crate::companions::Companions;
use crate::config_json;
use crate::error::Result;
use crate::layout::to_file;
use crate::names::{CONFIG, WEIGHTS};

/// The files of a folder for a model, by name: `config.json`, `model.safetensors` and the companions.
/// `values` are its parameters by global name, a tied one once; convolutions are written as (outputs, inputs,
/// height, width), adapters are left out.
///
/// The bytes are a function of the arguments, and `transformers` reads them: `GPT2LMHeadModel` for a
/// GPT. Nothing is written.
///
/// # Errors
/// [`Error::NotWritable`](crate::Error::NotWritable) for a model that could not be read again,
/// [`Error::Save`](crate::Error::Save) if two values have one name.
pub fn to_files<V: Clone + Into<Stored>>(
    model: &ModelConfig,
    values: &[(String, V)],
    companions: &Companions,
) -> Result<Vec<(String, FileContents)>> {
    let config = config_json::write(model, &companions.ids)?;
    let mut files = vec![
        (CONFIG.to_owned(), config.into()),
        (WEIGHTS.to_owned(), weights_file(values)?),
    ];
    let companions = companions.files.iter();
    files.extend(companions.map(|(name, bytes)| (name.clone(), bytes.clone().into())));
    Ok(files)
}

/// The file `model.safetensors` of [`to_files`] alone, with these parameters: all of a model, or those of one of the files
/// that an index lists.
///
/// # Errors
/// [`Error::Save`](crate::Error::Save) if two values have one name.
pub fn weights_file<V: Clone + Into<Stored>>(values: &[(String, V)]) -> Result<FileContents> {
    // Transformers opens no weights that do not name the framework.
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let stored = |(name, value): &(String, V)| (name.clone(), to_file(value.clone().into()));
    let of_model = values.iter().filter(|(name, _)| !is_adapter(name));
    let stored: Vec<_> = of_model.map(stored).collect();
    Ok(safetensors::contents(&stored, &metadata)?)
}
