//! The planner: chooses the number of workers, the schedule, the number of micro-batches, the cut and the
//! tensors to keep, for the fastest step within the memory, and bounds its distance from the optimum.
//!
//! Each schedule, number of workers and number of micro-batches has a lower bound over all cuts (`bound`,
//! and more tightly `relaxation`). The planner goes through them in ascending order of the bound
//! (`search`), finds the best cut of each by simulation (`cuts`), and stops when the next bound is above
//! the best time found. Each stage keeps as much as fits (`stage_choice`): the time of a step is a longest
//! path through the durations of all actions, so unnecessary recomputation never helps.

mod bound;
mod candidate;
mod certificate;
mod cheapest_cut;
mod comparisons;
mod crowded;
mod cuts;
mod described;
#[cfg(test)]
mod growth;
mod least_memory;
mod link;
mod plan;
mod rates;
mod relaxation;
mod replicated;
mod replication;
mod request;
mod search;
mod simple;
mod simulator_costs;
mod stage_bounds;
mod stage_choice;
mod step_parts;
mod survey;
mod times;

pub use described::Described;
pub use link::Link;
pub use plan::{CertifiedPlan, Plan, StepParts};
pub use rates::Rates;
pub use replication::{Placement, Replication};
pub use request::{Costed, FollowCosts, Held, MakeSchedule, NamedOrder, PlanRequest, Worker};
pub use search::Planner;
pub use simulator_costs::simulator_costs;
pub use times::{Times, Work};
