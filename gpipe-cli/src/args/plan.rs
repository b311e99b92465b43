//! Arguments of `gpipe plan`.

use std::path::PathBuf;

use gpipe_train::TrainConfig;
use gpipe_train::recommend::{PlanningOptions, parse_link};

use super::Settings;
use super::number::whole;
use crate::fail::Result;

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
        allow_hyphen_values = true,
        conflicts_with_all = ["model", "weights"]
    )]
    pub costs: Option<String>,
    /// Also write the schedule to a file, as a table that --schedule and PyTorch read
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with_all = ["auto", "compare"])]
    pub csv: Option<PathBuf>,
    /// Recommend the fastest stages, cut, schedule, micro-batches and rematerialization within
    /// --memory, with a bound on its distance from the best possible
    #[arg(long, help_heading = "Recommendation", conflicts_with = "compare")]
    pub auto: bool,
    /// Rank all plans, and add Lingvo's cut for comparison
    #[arg(long, help_heading = "Recommendation")]
    pub compare: bool,
    /// Measure the time of each layer on this machine, show it, and use it for predictions; later
    /// commands read it from FILE.profile.json next to --config FILE.toml, or from runs/profile.json
    #[arg(long, help_heading = "Recommendation", conflicts_with_all = ["costs", "workers"])]
    pub profile: bool,
    /// Options of --auto and --compare.
    #[command(flatten)]
    pub planning: AutoArgs,
}

/// The workers that a recommendation is for.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Recommendation")]
pub struct AutoArgs {
    /// Plan for these workers instead of this machine's: COUNT*FLOPS:MEMORY, such as
    /// 8*300T:80GiB,4*100T:16GiB; or known GPUs: 8*h100 (h200, h100, a100, 4090)
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub workers: Option<String>,
    /// The links between those workers: SECONDS:BYTES_PER_SECOND, such as 5e-6:25G [default: free]
    #[arg(long, value_name = "LINK", allow_hyphen_values = true)]
    pub link: Option<String>,
    /// As many hosts, each with those workers: recommend the number of replicas too
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    pub hosts: Option<usize>,
    /// The link of a host to the others, shared by its workers [default: that of --link]
    #[arg(long, value_name = "LINK", allow_hyphen_values = true)]
    pub host_link: Option<String>,
}

impl AutoArgs {
    /// The planning options of a configuration.
    pub fn options(&self, config: &TrainConfig) -> Result<PlanningOptions> {
        let mut options = PlanningOptions::default();
        if let Some(list) = &self.workers {
            let memory = config.pipeline.memory.bytes();
            options.list_workers(list, *config.run.dtype, memory)?;
        }
        let link = |flag, text: &Option<String>| {
            let link = text.as_deref().map(|text| parse_link(flag, text));
            link.transpose()
        };
        options.link = link("--link", &self.link)?;
        (options.hosts, options.host_link) = (self.hosts, link("--host-link", &self.host_link)?);
        Ok(options)
    }

    /// Whether any flag is given.
    pub fn is_given(&self) -> bool {
        let text = [&self.workers, &self.link, &self.host_link];
        self.hosts.is_some() || text.iter().any(|text| text.is_some())
    }
}
