//! Configuration flags: a file, keys by `--set`, and common keys as flags of their own.

use std::path::PathBuf;

/// The stages and workers of a forward-only run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Pipeline")]
pub struct Workers {
    /// Number of stages [default: that of the run, or 4]
    #[arg(long, value_name = "K")]
    pub stages: Option<String>,
    /// Workers, such as cpu*4 or cpu,cpu; a bare name is repeated for every stage of --stages
    #[arg(long, value_name = "LIST")]
    pub devices: Option<String>,
    /// Rule for cutting layers into stages: balance, histogram, or sizes such as 3,3,4,1
    #[arg(long, value_name = "RULE")]
    pub partition: Option<String>,
    /// CPU threads, shared by the busy stages [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
    /// Adapters of the model: a folder of peft with adapter_config.json [default: those of the checkpoint]
    #[arg(long, value_name = "FOLDER", help_heading = "Model")]
    pub adapter: Option<String>,
}

/// The configuration: a file, keys by `--set`, and common keys as flags of their own. Later ones win:
/// the defaults of the model, the file, `--set`, flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Settings {
    /// Read a TOML file first, such as the config.toml of an earlier run (of several, the last alone)
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<String>,

    /// A GPT: gpt-nano, gpt-mini, gpt2, or one for measurements: bench-tiny, bench-a, bench-b; a Llama: llama-nano; an
    /// encoder-decoder: seq2seq-nano, seq2seq-base; for images: mlp, convnet:A,B,… with a convolution of A, B, …
    /// channels each, resnet18, 34, 50, 101 or 152, unet:B,C with B convolutions on each level and C channels on the
    /// first, amoebanetd:L,D with L normal cells and D filters; or a folder with a GPT-2, Llama, Qwen2, Qwen3, Mistral or Gemma 3
    /// from Hugging Face, or a .gguf file [default: gpt-nano]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: Option<String>,
    /// Begin a network for images with the weights of a safetensors file, by torchvision's names
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub weights: Option<String>,
    /// Probability of dropping an activation, from 0 to below 1
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: Option<String>,

    /// Text: cicero (built in), a text file or a folder of text files; images: digits (built in), or for a
    /// network other than mlp a folder with a folder of png or jpg files for each class (for unet: the folders
    /// images and masks), or synthetic (noise, for measurements) [default: cicero, or digits for mlp and convnet,
    /// synthetic for the others]
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub data: Option<String>,
    /// For an encoder-decoder: a text with the target of each line of --data
    #[arg(long, value_name = "TEXT", help_heading = "Data")]
    pub target: Option<String>,
    /// The tokenizer: auto (tokenizer.json in the folder of the model, or else bytes), bytes, or a
    /// tokenizer.json, which sets the vocabulary of a model given by name [default: auto]
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub tokenizer: Option<String>,
    /// Tokens per sample
    #[arg(long, value_name = "TOKENS", help_heading = "Data")]
    pub seq_len: Option<String>,
    /// Height and width of images in pixels [default: that of the network, or 8 for digits]
    #[arg(long, value_name = "PIXELS", help_heading = "Data")]
    pub image_size: Option<String>,
    /// Target of the loss of images: class (cross-entropy), one-hot (mean squared error) or mask [default: class,
    /// or mask for unet]
    #[arg(long, value_name = "TARGET", help_heading = "Data")]
    pub loss_target: Option<String>,
    /// Samples per step
    #[arg(long, value_name = "SAMPLES", help_heading = "Data")]
    pub batch_size: Option<String>,
    /// Keep the order of the samples instead of shuffling them in each epoch
    #[arg(long, help_heading = "Data")]
    pub no_shuffle: bool,

    /// Number of stages [default: one for each listed worker, or 4]
    #[arg(long, value_name = "K", help_heading = "Pipeline")]
    pub stages: Option<String>,
    /// Workers, such as cpu*4 or cpu,cpu; a bare name is repeated for every stage of --stages
    #[arg(long, value_name = "LIST", help_heading = "Pipeline")]
    pub devices: Option<String>,
    /// Micro-batches per batch; their sizes differ by at most one sample
    #[arg(
        long,
        value_name = "M",
        help_heading = "Pipeline",
        conflicts_with = "micro_batch_size"
    )]
    pub micro_batches: Option<String>,
    /// Maximum samples per micro-batch
    #[arg(long, value_name = "SAMPLES", help_heading = "Pipeline")]
    pub micro_batch_size: Option<String>,
    /// Groups of micro-batches whose gradients are summed in parallel [default: as many as replicas]
    #[arg(long, value_name = "G", help_heading = "Pipeline")]
    pub groups: Option<String>,
    /// Replicas of the pipeline, each run by as many of the launcher's processes [default: 1]
    #[arg(long, value_name = "R", help_heading = "Pipeline")]
    pub replicas: Option<String>,
    /// 1: replicas divide the optimizer states among them (ZeRO) [default: 0]
    #[arg(long, value_name = "STAGE", help_heading = "Pipeline")]
    pub zero: Option<String>,
    /// First layers that run on the whole batch, before the pipeline [default: 0]
    #[arg(long, value_name = "N", help_heading = "Pipeline")]
    pub before: Option<String>,
    /// Schedule: gpipe (all forward, then all backward), 1f1b (alternating), interleaved:V or
    /// looped-bfs:V (V stages per worker), zb-h1 or zb-h2 (weight gradients fill the bubble),
    /// zero-bubble or zero-bubble:N (built for the predicted costs, with at most N micro-batches in flight
    /// per stage), with two stages per worker folded in a V: zb-v, v-half, v-min (less memory) or
    /// dualpipe-v; or a table in PyTorch's format such as table.csv. `gpipe help schedules` draws them
    /// [default: gpipe]
    #[arg(long, value_name = "NAME", help_heading = "Pipeline")]
    pub schedule: Option<String>,
    /// Rule for cutting layers into stages: balance (the best), histogram (Lingvo's rule), or sizes such
    /// as 3,3,4,1 [default: balance]
    #[arg(long, value_name = "RULE", help_heading = "Pipeline")]
    pub partition: Option<String>,
    /// Cost model of layers: complete (all FLOPs), time (FLOPs and bytes of memory), time:N (with N FLOPs in
    /// the time of a byte) or lingvo (its formulas) [default: complete, or time for networks for images]
    #[arg(long, value_name = "NAME", help_heading = "Pipeline")]
    pub cost_model: Option<String>,
    /// Activations kept for the backward pass, others are recomputed: keep (all), stage (the inputs of
    /// stages), except-last (the same, and all of the last micro-batch), every:N (the inputs of every
    /// N-th layer), or budget:BYTES (as many as fit each stage into the bytes, such as budget:2GiB)
    /// [default: stage]
    #[arg(long, value_name = "POLICY", help_heading = "Pipeline")]
    pub remat: Option<String>,
    /// Memory limit of each worker, such as 2GiB: a run that needs more is refused, and --auto plans
    /// within it [default: unlimited]
    #[arg(long, value_name = "BYTES", help_heading = "Pipeline")]
    pub memory: Option<String>,
    /// CPU threads, shared by the busy stages [default: one per core]
    #[arg(long, value_name = "N", help_heading = "Pipeline")]
    pub threads: Option<String>,

    /// adamw, sgd or rmsprop [default: adamw]
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    pub optimizer: Option<String>,
    /// Learning rate
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    pub lr: Option<String>,
    /// constant, or cosine (to a tenth of the learning rate at the last step)
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    pub lr_schedule: Option<String>,
    /// Steps of linear learning-rate warm-up
    #[arg(long, value_name = "STEPS", help_heading = "Optimizer")]
    pub warmup_steps: Option<String>,
    /// Weight decay [default of sgd and rmsprop: 0]
    #[arg(long, value_name = "RATE", help_heading = "Optimizer")]
    pub weight_decay: Option<String>,
    /// Share of the probability that targets leave to other classes in training, from 0 to below 1
    #[arg(long, value_name = "E", help_heading = "Optimizer")]
    pub label_smoothing: Option<String>,
    /// Maximum global gradient norm; 0 is off
    #[arg(long, value_name = "NORM", help_heading = "Optimizer")]
    pub clip_norm: Option<String>,
    /// Do not train the parameters in whose names this regular expression is found: they have no
    /// gradient and no optimizer state
    #[arg(long, value_name = "REGEX", help_heading = "Optimizer")]
    pub freeze: Option<String>,
    /// Train adapters of this rank (LoRA) of linear layers, and nothing else
    #[arg(long, value_name = "RANK", help_heading = "Optimizer")]
    pub lora: Option<String>,
    /// Scale of the adapters, times their rank [default: 8]
    #[arg(long, value_name = "ALPHA", help_heading = "Optimizer")]
    pub lora_alpha: Option<String>,
    /// Share of the adapters' inputs that is dropped in training [default: 0]
    #[arg(long, value_name = "P", help_heading = "Optimizer")]
    pub lora_dropout: Option<String>,
    /// Adapt the linear layers in whose names this regular expression is found [default: q_proj and v_proj of a
    /// Llama, c_attn of a GPT]
    #[arg(long, value_name = "REGEX", help_heading = "Optimizer")]
    pub lora_targets: Option<String>,
    /// Begin with the adapters in a folder of peft, and train these
    #[arg(long, value_name = "FOLDER", help_heading = "Optimizer")]
    pub adapter: Option<String>,

    /// Training steps (verify compares 3 by default)
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub steps: Option<String>,
    /// Steps between evaluations on the held-out last tenth of the data; 0 is off [default: 0, or 50
    /// for mlp and 100 for the other networks for images]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub eval_every: Option<String>,
    /// Steps between checkpoints; the end, Ctrl-C or SIGTERM, and the best evaluation so far also save
    /// one, and 0 saves only those [default: 100]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub save_every: Option<String>,
    /// Number of newest checkpoints to keep, besides the best by evaluation; 0 saves none [default: 3]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub keep: Option<String>,
    /// Seed of initial values, dropout and the order of samples [default: 0]
    #[arg(long, value_name = "SEED", help_heading = "Run")]
    pub seed: Option<String>,
    /// Steps whose timelines are kept for report and Perfetto: a number of last steps, or a list such
    /// as 10,20..25; 0 is none [default: 1]
    #[arg(long, value_name = "STEPS", help_heading = "Run")]
    pub trace_steps: Option<String>,
    /// Time limit of each part of a step, as a multiple of the slowest step before it (of a minute, before
    /// the first) and at least a minute; or off, for debugging [default: 30]
    #[arg(long, value_name = "FACTOR", help_heading = "Run")]
    pub watchdog: Option<String>,
    /// Precision: f32, or bf16 with 8 bits. On GPUs, bf16 applies to parameters and activations, with
    /// a master copy of the parameters and all sums in f32; on CPUs with
    /// AMX or AMD's AVX512-BF16, to large matrix products only [default: f32]
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    pub dtype: Option<String>,
    /// Use TF32 (11 bits) for f32 matrix products on CUDA devices: faster, less exact
    #[arg(long, help_heading = "Run")]
    pub tf32: bool,
    /// Ask CUDA devices for the operations of a training step as CUDA graphs, the default
    #[arg(long, help_heading = "Run")]
    pub cuda_graphs: bool,
    /// Ask CUDA devices for each operation of a training step by a launch of its own
    #[arg(long, help_heading = "Run", overrides_with = "cuda_graphs")]
    pub no_cuda_graphs: bool,
}
