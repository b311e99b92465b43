//! What `gpipe plan` can be told.

use std::path::PathBuf;

use super::Settings;

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
