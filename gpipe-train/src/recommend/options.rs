//! What a recommendation is for, beside the model.

use gpipe_remat::Rates;
use gpipe_remat::planner::{Link, Worker};

use super::hosts::Ranks;
use crate::config::FixedKeys;

/// Workers to plan for, instead of those of this machine or of a cost file.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PlanningOptions {
    /// The workers; `None` for those of this machine or of the cost file.
    pub workers: Option<Vec<Worker>>,
    /// The link between them; `None` for that of the cost file, or a free one.
    pub link: Option<Link>,
    /// Hosts, each with these workers; `None` for one pipeline on them.
    pub hosts: Option<usize>,
    /// The link between hosts; `None` for the one inside.
    pub host_link: Option<Link>,
    /// FLOPs, bytes and actions in time, of which only the ratios count; `None` for what the cost model counts.
    pub rates: Option<Rates>,
    /// A known GPU among the workers: values are stored and multiplied as on GPUs.
    pub gpu: Option<&'static str>,
    /// The keys that plans keep to.
    pub fixed: FixedKeys,
    /// The ranks of a launcher, each of them a worker, instead of the other options.
    pub ranks: Option<Ranks>,
}
