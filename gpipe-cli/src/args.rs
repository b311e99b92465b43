//! What was typed.
//!
//! A flag that stands for a key of the configuration is kept as text: it means the same as
//! `--set KEY=TEXT`, and [`crate::config`] gives both their meaning in one place.

mod settings;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use settings::{Settings, Workers};

/// Train neural networks by pipeline parallelism
///
/// The model's layers are cut into stages, a batch into micro-batches; each stage works on another
/// micro-batch at the same time (Huang et al. 2019, "GPipe"). Results are the same, bit for bit,
/// for any number of stages.
#[derive(Debug, Parser)]
#[command(
    name = "gpipe",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
#[command(after_long_help = "Examples:
  gpipe train                              a small GPT on built-in text
  gpipe plan --model gpt2 --stages 8       the cut, the grid and the memory
  gpipe verify --stages 4 --schedule 1f1b  the same bits as one stage?
  gpipe sample runs/NAME --prompt Et       text from what was trained
  gpipe help train                         all that train can be told

Exit codes:
  0  done
  1  a run failed, or a comparison found a difference
  2  wrong usage
  130  stopped by Ctrl-C or SIGTERM, after saving

Results go to stdout, everything else to stderr.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How to talk.
    #[command(flatten)]
    pub talk: Talk,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe train
  gpipe train --data notes/ --seq-len 128 --steps 1000 --eval-every 100
  gpipe train --model ~/models/gpt2 --data notes/
  gpipe train --stages 8 --micro-batches 16 --schedule 1f1b --remat every:2
  gpipe train --model mlp --data digits         a classifier of images
  gpipe train --set optimizer.beta2=0.99 --set model.blocks=6
  gpipe train --config runs/NAME/config.toml    the run NAME again
  gpipe train --resume                          the last run goes on
  gpipe train --resume runs/NAME --stages 2     NAME goes on, in two stages
  tensorboard --logdir runs                     its curves, while it trains

The run's folder holds config.toml (the whole configuration), log.txt,
events.jsonl, an event file for TensorBoard, and checkpoints/.
Ctrl-C or SIGTERM finishes the step, saves, and ends with exit code 130; a
second one quits at once.

Defaults that are not shown depend on the model: gpipe plan -v lists them."
    )]
    Train(TrainArgs),
    /// Show what would be run: the cut, the schedule as a grid, the bubble, the memory
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe plan --stages 4 --micro-batches 16
  gpipe plan --model gpt-mini --remat keep --json
  gpipe plan --costs 10,40,30,10,20,50,10 --stages 3
  gpipe plan --auto --memory 64MiB
  gpipe plan --model gpt-mini --auto --profile
  gpipe plan --model gpt2 --compare --workers 4*100T:16GiB --link 5e-6:25G
  gpipe plan -v                            with every key and its default"
    )]
    Plan(PlanArgs),
    /// Train a few steps twice, with one stage and as configured, and compare every bit
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe verify --stages 4 --schedule 1f1b --remat every:2
  gpipe verify --stages 8 --dropout 0.2 --threads 3 --json"
    )]
    Verify(VerifyArgs),
    /// Show where stages can run on this machine
    #[command(after_long_help = "Examples:
  gpipe devices
  gpipe devices --json                     one object a device")]
    Devices,
    /// Write completions for a shell, or the pages for man
    #[command(
        arg_required_else_help = true,
        after_long_help = "Examples:
  gpipe generate completions zsh ~/.zfunc
  gpipe generate man ~/.local/share/man/man1"
    )]
    Generate(GenerateArgs),
    /// Show a run as one page for a browser: timeline, bubble, memory, curves, cut; or two runs
    #[command(after_long_help = "Examples:
  gpipe report runs/NAME                  writes runs/NAME/report.html
  gpipe report runs/A runs/B --out ab.html

The page is one file that needs no network. It shows the steps that train kept
(--trace-steps).")]
    Report(ReportArgs),
    /// Evaluate a model: its loss and perplexity on a text
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe eval runs/NAME                     its latest checkpoint
  gpipe eval runs/NAME/checkpoints/step-00000120 --data other.txt
  gpipe eval ~/models/gpt2 --data notes/ --seq-len 256 --json"
    )]
    Eval(EvalArgs),
    /// Let a model go on from a prompt
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe sample runs/NAME --prompt Quae
  gpipe sample ~/models/gpt2 --prompt Once --top-k 40 --tokens 500 --seed 3
  gpipe sample runs/NAME --prompt Et --temperature 0 --json"
    )]
    Sample(SampleArgs),
    /// Explain a command, or the schedules
    #[command(after_long_help = "Examples:
  gpipe help train
  gpipe help schedules")]
    Help(HelpArgs),
}

/// How to talk.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Talk {
    /// Print results as JSON, one object a line, on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// Say nothing but warnings, errors and what --json prints
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more: every step of train, all keys in plan, the causes of an error
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Use colours: auto (on a terminal, see NO_COLOR and CLICOLOR_FORCE), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Arguments of `gpipe train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
    /// The run's folder [default: runs/ and the date with a short hash of the configuration]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub out: Option<PathBuf>,
    /// Replace the files of an earlier run in the run's folder, its checkpoints too
    #[arg(long, help_heading = "Run", requires = "out")]
    pub overwrite: bool,
    /// Go on from the newest whole checkpoint of a run, or from the checkpoint DIR [default DIR: the
    /// run in runs/ that saved last]
    ///
    /// The configuration is that of the checkpoint; flags change it. The run goes on in its own
    /// folder, or in a new one with --out. Other stages, schedules, policies and threads change no
    /// bit of the result; what does is said, and another model is refused.
    #[arg(long, value_name = "DIR", help_heading = "Run", conflicts_with = "config", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Run what gpipe plan --auto recommends
    #[arg(long, help_heading = "Run", conflicts_with = "resume")]
    pub auto: bool,
    /// Measure the layers for --auto first, as gpipe plan --profile does
    #[arg(long, help_heading = "Run", requires = "auto")]
    pub profile: bool,
    /// Show the plan and stop, as gpipe plan does
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,
}

/// Arguments of `gpipe plan`.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
    /// Plan for bare layer costs instead of a model: whole numbers of any unit, or a file: gpipe's own
    /// JSON, or a graph.txt of PipeDream's profiler
    #[arg(
        long,
        value_name = "LIST|FILE",
        help_heading = "Model",
        allow_hyphen_values = true
    )]
    pub costs: Option<String>,
    /// Also write the schedule to a file, as a table that --schedule and PyTorch read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Recommend the fastest stages, cut, schedule, micro-batches and rematerialization within
    /// --memory, and say how far from the best possible that is at most
    #[arg(long, help_heading = "Recommendation", conflicts_with = "compare")]
    pub auto: bool,
    /// Rank all of them, with what Lingvo's cut would cost
    #[arg(long, help_heading = "Recommendation")]
    pub compare: bool,
    /// Measure how long each layer takes on this machine, show it, and predict by that; it is kept for
    /// later commands beside the --config FILE, as FILE.profile.json, or in runs/profile.json
    #[arg(long, help_heading = "Recommendation", conflicts_with_all = ["costs", "workers"])]
    pub profile: bool,
    /// What --auto and --compare plan with.
    #[command(flatten)]
    pub planning: AutoArgs,
}

/// What a recommendation is made for.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Recommendation")]
pub struct AutoArgs {
    /// Plan for these workers instead of this machine's: COUNT*FLOPS:MEMORY, such as
    /// 8*300T:80GiB,4*100T:16GiB
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub workers: Option<String>,
    /// The links between those workers: SECONDS:BYTES_PER_SECOND, such as 5e-6:25G [default: free]
    #[arg(long, value_name = "LINK", allow_hyphen_values = true)]
    pub link: Option<String>,
}

/// Arguments of `gpipe help`.
#[derive(Debug, clap::Args)]
pub struct HelpArgs {
    /// A command, or schedules
    pub topic: Option<String>,
}

/// Arguments of `gpipe verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `gpipe generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// What to write.
    #[command(subcommand)]
    pub what: Artifact,
}

/// What can be written from the description of the command line.
#[derive(Debug, Subcommand)]
pub enum Artifact {
    /// Write the completions for a shell
    #[command(after_long_help = "Examples:
  gpipe generate completions bash ~/.local/share/bash-completion/completions
  gpipe generate completions fish ~/.config/fish/completions
  gpipe generate completions zsh           to stdout")]
    Completions {
        /// The shell
        shell: Shell,
        /// Write a file of the usual name into this folder, not to stdout
        dir: Option<PathBuf>,
    },
    /// Write the pages for man, one a command
    #[command(after_long_help = "Examples:
  gpipe generate man ~/.local/share/man/man1
  gpipe generate man | man -l -            one page after the other")]
    Man {
        /// Write the files gpipe.1, gpipe-train.1 and so on into this folder, not to stdout
        dir: Option<PathBuf>,
    },
}

/// Arguments of `gpipe report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The folder of a run, or of two that are compared
    #[arg(value_name = "RUN", required = true, num_args = 1..=2)]
    pub runs: Vec<PathBuf>,
    /// The page [default: report.html in the folder of the last run named]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The lines below `Examples:`, without the words that explain them.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_long_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let lines = lines.take_while(|line| line.starts_with("  "));
        lines
            .map(|line| {
                line.trim()
                    .split("  ")
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn every_command_has_examples_and_every_example_parses() {
        let mut program = Args::command();
        program.build();
        let mut open = vec![program];
        while let Some(command) = open.pop() {
            let name = command.get_bin_name().unwrap_or_default().to_owned();
            if command.get_name() == "help" {
                continue;
            }
            let examples = examples(&command);
            assert!(!examples.is_empty(), "no example in {name} --help");
            let help = command.get_after_long_help().map(ToString::to_string);
            for line in help.iter().flat_map(|help| help.lines()) {
                assert!(
                    line.chars().count() <= 80,
                    "too long for a terminal: {line}"
                );
            }
            for example in &examples {
                if example.starts_with("tensorboard ") {
                    continue;
                }
                assert!(example.starts_with(&name), "{example} is none of {name}");
                let words = example.split(" | ").next().unwrap_or_default();
                if let Err(error) = Args::try_parse_from(words.split_whitespace())
                    && error.kind() != clap::error::ErrorKind::DisplayHelp
                {
                    panic!("{example}: {error}");
                }
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}
