//! `timeline.json`: the plan of a run, its prediction, and the measured timelines of some steps.

pub(crate) mod cuts;
pub(crate) mod flat;
pub(crate) mod info;
pub(crate) mod record;
mod tracer;

pub use cuts::{Cut, Cuts};
pub use flat::FlatTimeline;
pub use info::{Machine, RunInfo, StageInfo};
pub use record::{MeasuredStep, Record};
pub use tracer::Tracer;
