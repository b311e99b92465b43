//! The configuration as flags: a file, keys by `--set`, and the common keys as flags of their own.

use std::path::PathBuf;

/// How a model that is not trained is spread over workers.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Pipeline")]
pub struct Workers {
    /// Stages that the model is cut into [default: those of the run, or 4]
    #[arg(long, value_name = "K")]
    pub stages: Option<String>,
    /// Workers, such as cpu*4 or cpu,cpu; a bare name is repeated for every stage
    #[arg(long, value_name = "LIST")]
    pub devices: Option<String>,
    /// How layers are cut: balance, histogram, or sizes such as 3,3,4,2
    #[arg(long, value_name = "RULE")]
    pub partition: Option<String>,
    /// Threads in all, shared by the stages that are busy [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
}

/// The configuration: a file, keys by `--set`, and the common keys as flags of their own.
/// Later ones win: the model's defaults, the file, `--set`, flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Settings {
    /// Read a TOML file first, such as the config.toml of an earlier run
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,

    /// A GPT: gpt-nano, gpt-mini, gpt2, or one for measurements: bench-tiny, bench-a, bench-b; a classifier
    /// of images: mlp; or a folder with a GPT-2 from Hugging Face [default: gpt-nano]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: Option<String>,
    /// Probability of dropping an activation, from 0 to below 1
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: Option<String>,

    /// cicero (built in), a text file, a folder of text files, or digits (images, built in, for the
    /// model mlp) [default: cicero, or digits for mlp]
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub data: Option<String>,
    /// What tokens are: auto (those of tokenizer.json in the model's folder, or else bytes), bytes, or
    /// a tokenizer.json; the vocabulary of a model that comes by name follows it [default: auto]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<String>,
    /// Tokens of a sample
    #[arg(long, value_name = "TOKENS", help_heading = "Data")]
    pub seq_len: Option<String>,
    /// Samples of a step
    #[arg(long, value_name = "SAMPLES", help_heading = "Data")]
    pub batch_size: Option<String>,
    /// Take samples in the order of the text, not shuffled anew each epoch
    #[arg(long, help_heading = "Data")]
    pub no_shuffle: bool,

    /// Stages that the model is cut into [default: one for each listed worker, or the model's: 4]
    #[arg(long, value_name = "K", help_heading = "Pipeline")]
    pub stages: Option<String>,
    /// Workers, such as cpu*4 or cpu,cpu; a bare name is repeated for every stage
    #[arg(long, value_name = "LIST", help_heading = "Pipeline")]
    pub devices: Option<String>,
    /// Micro-batches that a batch is cut into; they differ by at most one sample
    #[arg(
        long,
        value_name = "M",
        help_heading = "Pipeline",
        conflicts_with = "micro_batch_size"
    )]
    pub micro_batches: Option<String>,
    /// Samples of a micro-batch, at most
    #[arg(long, value_name = "SAMPLES", help_heading = "Pipeline")]
    pub micro_batch_size: Option<String>,
    /// Order of work: gpipe (all forward, then all backward), 1f1b (alternating), interleaved:V or
    /// looped-bfs:V (V stages a worker), zb-h1 or zb-h2 (weight gradients fill the bubble),
    /// zero-bubble or zero-bubble:HELD (they follow the predicted costs, with at most HELD
    /// micro-batches in a stage), and, two stages a worker folded in a V, zb-v, v-half or v-min (less
    /// memory) and dualpipe-v; or a table of PyTorch's such as table.csv. `gpipe help schedules`
    /// draws them [default: gpipe]
    #[arg(long, value_name = "NAME", help_heading = "Pipeline")]
    pub schedule: Option<String>,
    /// How layers are cut: balance (the best), histogram (Lingvo's rule), or sizes such as 3,3,4,2
    /// [default: balance]
    #[arg(long, value_name = "RULE", help_heading = "Pipeline")]
    pub partition: Option<String>,
    /// What a layer costs: complete (all FLOPs) or lingvo (its formulas) [default: complete]
    #[arg(long, value_name = "NAME", help_heading = "Pipeline")]
    pub cost_model: Option<String>,
    /// What is kept from forward to backward, all else being computed again: keep (everything), stage
    /// (what enters a stage), except-last (that too, and everything of the last micro-batch), every:N
    /// (what enters every N-th layer), or budget:BYTES (so much that a stage fits the bytes, such as
    /// budget:2GiB) [default: stage]
    #[arg(long, value_name = "POLICY", help_heading = "Pipeline")]
    pub remat: Option<String>,
    /// The most that a worker may hold, such as 2GiB: what needs more is refused, and --auto plans
    /// within it [default: unlimited]
    #[arg(long, value_name = "BYTES", help_heading = "Pipeline")]
    pub memory: Option<String>,
    /// Threads in all, shared by the stages that are busy [default: one for each core]
    #[arg(long, value_name = "N", help_heading = "Pipeline")]
    pub threads: Option<String>,

    /// Learning rate
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    pub lr: Option<String>,
    /// constant, or cosine (to a tenth of the learning rate at the last step)
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    pub lr_schedule: Option<String>,
    /// Steps in which the learning rate grows to its full value
    #[arg(long, value_name = "STEPS", help_heading = "Optimizer")]
    pub warmup_steps: Option<String>,
    /// Weight decay of AdamW
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    pub weight_decay: Option<String>,
    /// Largest norm of all gradients together; 0 is off
    #[arg(long, value_name = "NORM", help_heading = "Optimizer")]
    pub clip_norm: Option<String>,

    /// Training steps (verify compares 3 unless told)
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub steps: Option<String>,
    /// Evaluate on the held-out last tenth of the data every so many steps; 0 is off [default: 0,
    /// or 50 for mlp]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub eval_every: Option<String>,
    /// Save a checkpoint every so many steps, and in any case at the end, on Ctrl-C or SIGTERM, and
    /// after the best evaluation so far; 0 is only then [default: 100]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub save_every: Option<String>,
    /// Keep so many newest checkpoints, and the best by evaluation; 0 saves none [default: 3]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub keep: Option<String>,
    /// Decides initial values, dropout and the order of samples [default: 0]
    #[arg(long, value_name = "SEED", help_heading = "Run")]
    pub seed: Option<String>,
    /// Steps whose timelines are kept for report and Perfetto: so many last ones, or a list such as
    /// 10,20..25; 0 is none [default: 1]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub trace_steps: Option<String>,
    /// Stop when a step takes so many times as long as the slowest before it, at least a minute; or
    /// off, for debugging [default: 30]
    #[arg(long, value_name = "FACTOR", help_heading = "Run")]
    pub watchdog: Option<String>,
    /// Numbers: f32, or bf16, which has 8 bits of precision. On GPUs that means parameters and
    /// activations, with a copy of the parameters and all sums in f32; on processors, which need AMX
    /// for it, the products of linear layers alone [default: f32]
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    pub dtype: Option<String>,
    /// Let products of floats on CUDA devices round their factors to TF32 (11 bits): faster, less exact
    #[arg(long, help_heading = "Run")]
    pub tf32: bool,
}
