//! What can be asked of a model that is trained: `gpipe eval` and `gpipe sample`.

use std::path::PathBuf;

use super::Workers;

/// Arguments of `gpipe eval`.
#[derive(Debug, clap::Args)]
pub struct EvalArgs {
    /// A run's folder (its newest whole checkpoint), a checkpoint, or a folder with config.json
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// cicero (built in), or a text file, or a folder of text files, all of it [default: what the
    /// run held out, or its whole text if it held out none; cicero where there was no run]
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub data: Option<String>,
    /// What tokens are: auto, bytes, or a tokenizer.json [default: auto: those of tokenizer.json in the
    /// model's folder, or else bytes]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<String>,
    /// Tokens of a sample [default: those of the run, or at most 256]
    #[arg(long, value_name = "TOKENS", help_heading = "Data")]
    pub seq_len: Option<String>,
    /// Samples of a batch [default: those of the run, or 8]
    #[arg(long, value_name = "SAMPLES", help_heading = "Data")]
    pub batch_size: Option<String>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,
    /// Who computes.
    #[command(flatten)]
    pub workers: Workers,
}

/// Arguments of `gpipe sample`.
#[derive(Debug, clap::Args)]
pub struct SampleArgs {
    /// A run's folder (its newest whole checkpoint), a checkpoint, or a folder with config.json
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The text that the model goes on from
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "\n",
        hide_default_value = true,
        help_heading = "Text"
    )]
    pub prompt: String,
    /// Tokens to say after the prompt
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Text")]
    pub tokens: u32,
    /// Below 1 likely tokens become likelier; 0 always takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8, help_heading = "Text")]
    pub temperature: f64,
    /// Choose among the so many likeliest tokens only [default: among all]
    #[arg(long, value_name = "N", help_heading = "Text")]
    pub top_k: Option<usize>,
    /// What tokens are: auto, bytes, or a tokenizer.json [default: auto: those of tokenizer.json in the
    /// model's folder, or else bytes]
    #[arg(long, value_name = "FILE", help_heading = "Text")]
    pub tokenizer: Option<String>,
    /// Another seed says another text [default: that of the run, or 0]
    #[arg(long, value_name = "SEED", help_heading = "Text")]
    pub seed: Option<String>,
    /// Who computes.
    #[command(flatten)]
    pub workers: Workers,
}
