//! What the files of a model's folder are called.

/// The file of family and sizes.
pub const CONFIG: &str = "config.json";
/// The file of the weights, where they are in one.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that says which file has which weights, where there are several.
pub const INDEX: &str = "model.safetensors.index.json";
/// The file of the tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";
/// The file of a tokenizer's settings and special tokens.
pub(crate) const SETTINGS: &str = "tokenizer_config.json";
/// The file of special tokens by their names, which `transformers` wrote before those of the settings were enough.
pub(crate) const SPECIAL_TOKENS: &str = "special_tokens_map.json";
/// The file of the chat template, where it has one of its own.
pub(crate) const TEMPLATE: &str = "chat_template.jinja";

/// The mend where a file of a model cannot be read.
pub(crate) const MEND: &str =
    "name a folder with config.json and model.safetensors, or a .gguf file";
/// The same for the one file of `model.weights`.
pub(crate) const MEND_OF_FILE: &str = "name a .safetensors file";
