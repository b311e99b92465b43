//! Models: plain functions that return a flat list of layers, because a list is what a partitioner
//! cuts.

mod amoebanet;
mod config;
mod convnet;
mod gpt;
mod image;
mod llama;
mod mlp;
mod presets;
mod resnet;
mod seq2seq;
mod sizes;
mod unet;

pub use config::ModelConfig;
pub use gpt::{GptConfig, gpt};
pub use image::{ImageConfig, Network, image};
pub use llama::{LlamaConfig, llama};
pub use mlp::{MlpConfig, mlp};
pub use presets::{PRESETS, Preset, preset};
pub use seq2seq::{Seq2SeqConfig, seq2seq};
