//! Command-line arguments.
//!
//! A flag that sets a key of the configuration is kept as text: it is equivalent to `--set KEY=TEXT`,
//! and [`gpipe_train::Overrides`] parses both.

mod flags;
mod generate;
mod number;
mod overrides;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod train;
mod trained;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub use flags::{flag_for, flag_of, has_flag, key_of, set_command};
pub use generate::{Artifact, GenerateArgs};
pub use plan::PlanArgs;
pub use settings::{Settings, Workers};
pub use train::{LaunchedArgs, TrainArgs, VerifyArgs};
pub use trained::{EvalArgs, PredictArgs, SampleArgs};

/// Train neural networks by pipeline parallelism
///
/// The model's layers are cut into stages, a batch into micro-batches; each stage works on another
/// micro-batch at the same time (Huang et al. 2019, "GPipe"). Results are the same, bit for bit,
/// for any number of stages.
#[derive(Debug, Parser)]
#[command(
    name = "gpipe",
    bin_name = "gpipe",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
#[command(after_long_help = "Examples:
  gpipe train                              a small GPT on built-in text
  gpipe plan --model gpt2 --stages 8       the cut, the grid and the memory
  gpipe verify --stages 4 --schedule 1f1b  the same bits as one stage?
  gpipe sample runs/NAME --prompt Et       text from the trained model
  gpipe help train                         all flags of train

Exit codes:
  0  done
  1  a run failed, a comparison found a difference, or a check a fault
  2  wrong usage
  130  stopped by a signal, after saving (SIGINT, SIGTERM, SIGHUP, ...)

Results go to stdout, everything else to stderr.")]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// The form of the output.
    #[command(flatten)]
    pub output: OutputArgs,
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
  gpipe train --model convnet --data digits     a classifier of images
  gpipe train --set optimizer.beta2=0.99 --set model.blocks=6
  gpipe train --config runs/NAME/config.toml    the run NAME again
  gpipe train --resume                          resume the last run
  gpipe train --resume runs/NAME --stages 2     resume NAME, in two stages
  tensorboard --logdir runs                     show its curves

The run's folder holds config.toml (the whole configuration), log.txt,
events.jsonl, an event file for TensorBoard, and checkpoints/.
Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 finishes the step, leaves out an
evaluation, saves, and ends with exit code 130; another Ctrl-C or SIGTERM half
a second later, or SIGQUIT, quits at once. Open MPI's mpirun leaves no time for
that: send it SIGUSR1. With --json a lost stdout saves too; the exit code is
then 1.

Defaults that are not shown depend on the model: gpipe plan -v lists them."
    )]
    Train(TrainArgs),
    /// Show the plan of a run: the cut, the schedule as a grid, the bubble, the memory
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe plan --stages 4 --micro-batches 16
  gpipe plan --model gpt-mini --remat keep --json
  gpipe plan --costs 10,40,30,10,20,50,10 --stages 3
  gpipe plan --auto --memory 64MiB
  gpipe plan --model gpt-mini --auto --profile
  gpipe plan --model gpt2 --compare --workers '4*100T:16GiB' --link 5e-6:25G
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
    /// Evaluate a model: its loss and accuracy, and on a text its perplexity
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe eval runs/NAME                     its latest checkpoint
  gpipe eval runs/NAME/checkpoints/step-00000120 --data other.txt
  gpipe eval ~/models/gpt2 --data notes/ --seq-len 256 --json"
    )]
    Eval(EvalArgs),
    /// Predict the classes of pictures, or their masks
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe predict runs/NAME cat.jpg          its class, by the latest checkpoint
  gpipe predict runs/NAME pictures/ --top 5 --json
  gpipe predict runs/UNET pictures/ --masks masks/

A classifier sees the square in the centre, as in an evaluation; masks are of
the whole picture, in squares of its shorter side. A model of the built-in
digits takes bright ink on a dark ground."
    )]
    Predict(PredictArgs),
    /// Generate text from a prompt
    #[command(
        allow_negative_numbers = true,
        args_override_self = true,
        after_long_help = "Examples:
  gpipe sample runs/NAME --prompt Quae
  gpipe sample ~/models/gpt2 --prompt Once --top-k 40 --tokens 500 --seed 3
  gpipe sample runs/NAME --prompt Et --temperature 0 --json"
    )]
    Sample(SampleArgs),
    /// Read every file of every checkpoint of a run and compare it with its digest
    #[command(after_long_help = "Examples:
  gpipe check runs/NAME
  gpipe check runs/NAME/checkpoints/step-00000120 --json

Nothing is changed. The exit code is 1 if anything is wrong with a checkpoint.")]
    Check(CheckArgs),
    /// Write an HTML page about a run, or two: timeline, bubble, memory, curves, cut
    #[command(after_long_help = "Examples:
  gpipe report runs/NAME                  writes runs/NAME/report.html
  gpipe report runs/A runs/B --out ab.html

The page is one file that needs no network. It shows the timelines kept by
train --trace-steps.")]
    Report(ReportArgs),
    /// List the devices of this machine
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
    /// Explain a command, or the schedules
    #[command(after_long_help = "Examples:
  gpipe help train
  gpipe help schedules")]
    Help(HelpArgs),
}

/// The form of the output.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print results as JSON, one object a line, on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only results, warnings and errors: no messages, and no summary of train
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more: every step of train, all keys in plan, the causes of an error
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

/// Arguments of `gpipe help`.
#[derive(Debug, clap::Args)]
pub struct HelpArgs {
    /// A command, or schedules
    pub topic: Option<String>,
}

/// Arguments of `gpipe check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The folder of a run, or a checkpoint
    #[arg(value_name = "RUN")]
    pub folder: PathBuf,
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
