//! The files of a model's folder.

use std::collections::BTreeMap;

use gpipe_layers::models::ModelConfig;
use gpipe_tensor::DType;
use gpipe_tensor::safetensors::{self, FileContents, Stored};

use crate::adapter::is_adapter;
use crate::companions::Companions;
use crate::config_json;
use crate::error::{Error, Result};
use crate::layout::to_file;
use crate::names::{CONFIG, WEIGHTS};
use crate::weights::parameter_shapes;

/// The files of a folder for a model, by name: `config.json`, `model.safetensors` and the companions.
/// `values` are all of its parameters by global name, a tied one once; convolutions are written as (outputs, inputs,
/// height, width), adapters are left out.
///
/// The bytes are a function of the arguments, and `transformers` reads them: `GPT2LMHeadModel` for a
/// GPT. Nothing is written.
///
/// # Errors
/// [`Error::NotWritable`] for a model that could not be read again, and for a parameter without a value, or with one of
/// another shape or type; [`Error::Save`] if two values have one name.
pub fn to_files<V: Clone + Into<Stored>>(
    model: &ModelConfig,
    values: &[(String, V)],
    companions: &Companions,
) -> Result<Vec<(String, FileContents)>> {
    let mut files = files_beside_weights(model, companions)?;
    check_values(model, values)?;
    files.insert(1, (WEIGHTS.to_owned(), weights_file(values)?));
    Ok(files)
}

/// The files of [`to_files`] but for the weights: `config.json` and the companions.
///
/// # Errors
/// [`Error::NotWritable`] for a model that could not be read again.
pub fn files_beside_weights(
    model: &ModelConfig,
    companions: &Companions,
) -> Result<Vec<(String, FileContents)>> {
    let config = config_json::write(model, &companions.ids)?;
    let mut files = vec![(CONFIG.to_owned(), config.into())];
    let companions = companions.files.iter();
    files.extend(companions.map(|(name, bytes)| (name.clone(), bytes.clone().into())));
    Ok(files)
}

/// The file `model.safetensors` of [`to_files`] alone, with these parameters: all of a model, or those of one of the files
/// that an index lists.
///
/// # Errors
/// [`Error::Save`] if two values have one name.
pub fn weights_file<V: Clone + Into<Stored>>(values: &[(String, V)]) -> Result<FileContents> {
    // Transformers opens no weights that do not name the framework.
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let stored = |(name, value): &(String, V)| (name.clone(), to_file(value.clone().into()));
    let of_model = values.iter().filter(|(name, _)| !is_adapter(name));
    let stored: Vec<_> = of_model.map(stored).collect();
    Ok(safetensors::contents(&stored, &metadata)?)
}

/// Finds the first parameter whose value is missing or could not be read again, by name, or a value of none.
fn check_values<V: Clone + Into<Stored>>(
    model: &ModelConfig,
    values: &[(String, V)],
) -> Result<()> {
    let layers = model.layers();
    let mut layers = layers.map_err(|error| Error::NotWritable(error.to_string()))?;
    let shapes = parameter_shapes(&mut layers);
    let shapes: BTreeMap<_, _> = shapes
        .iter()
        .map(|(name, shape)| (&**name, shape))
        .collect();
    let mut missing = shapes.clone();
    for (name, value) in values.iter().filter(|(name, _)| !is_adapter(name)) {
        let value: Stored = value.clone().into();
        let fault = match shapes.get(&**name) {
            None => format!("`{name}` is no parameter of the model"),
            Some(&shape) if value.shape() != shape => {
                format!(
                    "`{name}` has shape {}, but the model asks for {shape}",
                    value.shape()
                )
            }
            Some(_) if value.dtype() == DType::U32 => {
                format!("`{name}` holds whole numbers, which are no weights")
            }
            Some(_) => {
                missing.remove(&**name);
                continue;
            }
        };
        return Err(Error::NotWritable(fault));
    }
    let mut missing = missing.into_keys();
    let Some(name) = missing.next() else {
        return Ok(());
    };
    let others = match missing.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let fault = format!("no value is given for the parameter `{name}`{others}");
    Err(Error::NotWritable(fault))
}
