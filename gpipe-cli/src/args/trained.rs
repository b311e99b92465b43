//! Arguments of `gpipe eval`, `gpipe predict` and `gpipe sample`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use super::Workers;
use super::number::{number, whole};

/// Arguments of `gpipe eval`.
#[derive(Debug, clap::Args)]
pub struct EvalArgs {
    /// The folder of a run (its newest intact checkpoint), a checkpoint, a folder with config.json, or a .gguf file
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// cicero (built in), a text file, or a folder of text files; for a model of images what train takes, such as a folder
    /// with a folder for each class [default: the held-out part of the run, or all of its data if it held out none;
    /// cicero for a model without a run]
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub data: Option<String>,
    /// For an encoder-decoder: a text with the target of each line of --data
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub target: Option<String>,
    /// The tokenizer: auto, bytes, or a tokenizer.json [default: auto, which is tokenizer.json in the
    /// folder of the model, or else bytes]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<String>,
    /// Tokens per sample [default: those of the run, or at most 256]
    #[arg(long, value_name = "TOKENS", help_heading = "Data")]
    pub seq_len: Option<String>,
    /// Samples per batch [default: those of the run, or 8]
    #[arg(long, value_name = "SAMPLES", help_heading = "Data")]
    pub batch_size: Option<String>,
    /// Write the model with its adapters merged into its weights to a new folder
    #[arg(long, value_name = "FOLDER", help_heading = "Model")]
    pub save_merged: Option<PathBuf>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,
    /// Stages and workers.
    #[command(flatten)]
    pub workers: Workers,
}

/// Arguments of `gpipe predict`.
#[derive(Debug, clap::Args)]
pub struct PredictArgs {
    /// The folder of a run (its newest intact checkpoint), a checkpoint, or a folder with config.json
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// PNG and JPEG files, and folders with some
    #[arg(value_name = "PICTURE", required = true)]
    pub pictures: Vec<PathBuf>,
    /// Print the N likeliest classes
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Output", value_parser = whole::<NonZeroUsize>)]
    pub top: NonZeroUsize,
    /// Write the mask of each picture to this folder, as PICTURE.png: from black to white the probability of each pixel; needed
    /// for a model that learned masks
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub masks: Option<PathBuf>,
    /// Pictures per batch [default: those of the run, or 8]
    #[arg(long, value_name = "SAMPLES", help_heading = "Data")]
    pub batch_size: Option<String>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,
    /// Stages and workers.
    #[command(flatten)]
    pub workers: Workers,
}

/// Arguments of `gpipe sample`.
#[derive(Debug, clap::Args)]
pub struct SampleArgs {
    /// The folder of a run (its newest intact checkpoint), a checkpoint, a folder with config.json, or a .gguf file
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The beginning of the text; repeated, of several texts at once; of an encoder-decoder, a line to decode the target
    /// of [default: the end of a line; none for an encoder-decoder]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "\n",
        hide_default_value = true,
        help_heading = "Text"
    )]
    pub prompt: Vec<String>,
    /// Tokens to generate after the prompt
    #[arg(long, value_name = "N", default_value = "200", help_heading = "Text", value_parser = whole::<NonZeroU32>)]
    pub tokens: NonZeroU32,
    /// Sampling temperature: below 1 favours likely tokens; 0 always takes the most likely
    #[arg(long, value_name = "T", default_value_t = 0.8, help_heading = "Text")]
    #[arg(value_parser = |text: &str| number(text, |t| t.is_finite() && t >= 0.0, "use a finite number from 0 up"))]
    pub temperature: f64,
    /// Sample from the N most likely tokens only [default: from all]
    #[arg(long, value_name = "N", help_heading = "Text", value_parser = whole::<NonZeroUsize>)]
    pub top_k: Option<NonZeroUsize>,
    /// Sample from the fewest most likely tokens that have this share of the probability together
    /// [default: from all]
    #[arg(long, value_name = "P", help_heading = "Text")]
    #[arg(value_parser = |text: &str| number(text, |p| p > 0.0 && p <= 1.0, "use a number above 0, up to 1"))]
    pub top_p: Option<f64>,
    /// Search for the likeliest of several texts that go on side by side from one prompt, with N of them, instead of
    /// sampling
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["json", "temperature", "top_k", "top_p"],
        help_heading = "Text",
        value_parser = whole::<NonZeroUsize>
    )]
    pub beams: Option<NonZeroUsize>,
    /// Go on after the end-of-text token of the model's config.json
    #[arg(long, help_heading = "Text")]
    pub ignore_end: bool,
    /// The tokenizer: auto, bytes, or a tokenizer.json [default: auto, which is tokenizer.json in the
    /// folder of the model, or else bytes]
    #[arg(long, value_name = "FILE", help_heading = "Text")]
    pub tokenizer: Option<String>,
    /// Seed of the sampling [default: that of the run, or 0]
    #[arg(long, value_name = "SEED", help_heading = "Text")]
    pub seed: Option<String>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,
    /// Stages and workers.
    #[command(flatten)]
    pub workers: Workers,
}
