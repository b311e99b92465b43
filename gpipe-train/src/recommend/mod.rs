//! Recommended plans: the fastest way to train a model on given workers, with an optimality bound.

mod apply;
mod comparison;
mod hosts;
mod options;
mod recommender;
mod refusal;
mod replicated;
#[cfg(test)]
mod tests;
mod this_machine;
mod workers;

pub use comparison::{Comparison, RankedPlan};
pub use hosts::Ranks;
pub use options::PlanningOptions;
pub use recommender::Recommender;
pub use workers::parse_link;
