//! What the files of a model's folder are called.

/// The file of family and sizes.
pub const CONFIG: &str = "config.json";
/// The file of the weights, where they are in one.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that says which file has which weights, where there are several.
pub const INDEX: &str = "model.safetensors.index.json";
/// The file of the tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";

/// The mend where a file of a model cannot be read.
pub(crate) const MEND: &str =
    "name a folder with config.json and model.safetensors, or a .gguf file";
/// The same for the one file of `model.weights`.
pub(crate) const MEND_OF_FILE: &str = "name a .safetensors file";
