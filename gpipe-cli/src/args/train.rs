//! Arguments of `gpipe train` and `gpipe verify`.

use std::path::PathBuf;

use super::Settings;
use super::number::seconds;

/// Arguments of `gpipe train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
    /// The folder of the run [default: in runs/, by date and a short hash of the configuration]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub out: Option<PathBuf>,
    /// Replace the files and checkpoints of an earlier run in the folder
    #[arg(long, help_heading = "Run", requires = "out")]
    pub overwrite: bool,
    /// Resume a run from its newest intact checkpoint, or from the checkpoint DIR [default DIR: the run
    /// in runs/ that saved last]
    ///
    /// The configuration is that of the checkpoint; flags change it. The run continues in its own
    /// folder, or in a new one with --out. Stages, schedule, rematerialization and threads do not change
    /// the results; a warning names changes that do, and a different model is refused.
    #[arg(long, value_name = "DIR", help_heading = "Run", conflicts_with = "config", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Run the recommendation of gpipe plan --auto
    #[arg(long, help_heading = "Run", conflicts_with = "resume")]
    pub auto: bool,
    /// Measure the layers for --auto first, like gpipe plan --profile
    #[arg(
        long,
        help_heading = "Run",
        requires = "auto",
        conflicts_with = "resume"
    )]
    pub profile: bool,
    /// Show the plan and exit, like gpipe plan
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,
    /// The launcher's processes.
    #[command(flatten)]
    pub launched: LaunchedArgs,
}

/// Arguments of `gpipe verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
    /// The launcher's processes.
    #[command(flatten)]
    pub launched: LaunchedArgs,
}

/// Arguments of commands that run over the processes of a launcher.
#[derive(Debug, clap::Args)]
pub struct LaunchedArgs {
    /// The MPI library of the launcher, where mpirun or srun starts several processes [default: the one beside
    /// the launcher, or on the loader's path]
    #[arg(long, value_name = "PATH", help_heading = "Run")]
    pub mpi: Option<PathBuf>,
    /// Seconds without a sign of life after which another of these processes has failed
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Run",
        default_value_t = 60
    )]
    #[arg(value_parser = seconds)]
    pub mpi_timeout: u64,
}

impl Default for LaunchedArgs {
    fn default() -> Self {
        Self {
            mpi: None,
            mpi_timeout: 60,
        }
    }
}
