//! What `gpipe train` and `gpipe verify` can be told.

use std::path::PathBuf;

use super::Settings;

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

/// Arguments of `gpipe verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The configuration.
    #[command(flatten)]
    pub settings: Settings,
}
