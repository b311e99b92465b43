#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adapter;
mod chat_template;
mod companions;
mod config_json;
mod description;
mod error;
mod folder;
mod gguf;
mod index;
mod layout;
mod links;
mod names;
mod tensor_file;
#[cfg(test)]
mod tests;
mod weights;

pub use adapter::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapter, adapter_files, from_file, is_adapter, merged,
    read_adapter,
};
pub use chat_template::{ChatTemplate, chat_template};
pub use companions::{Companions, tokenizer_file};
pub use config_json::{class_names, ids_of_classes, parse_config, read_config};
pub use description::Description;
pub use error::{Error, Result};
pub use folder::{files_beside_weights, to_files, weights_file};
pub use gguf::{gguf_tokenizer, is_gguf, parse_gguf};
pub use index::{Index, parse_index};
pub use names::{CONFIG, INDEX, TOKENIZER, WEIGHTS};
pub use weights::{Weights, parameter_shapes};
