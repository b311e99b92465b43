//! The planner: how many workers, which schedule, how many micro-batches, which cut and what to
//! keep, so that a step takes the least time within the memory; and how far from the best possible
//! that is, at most.
//!
//! For every schedule, number of workers and number of micro-batches there is a time that no cut goes
//! below, whatever is kept (`bound`, and more tightly `tight_bound`). The planner goes through them
//! from the lowest bound up (`search`), looks for the best cut of each by simulation (`cuts`), and
//! stops where the next bound is above the best time found. Each stage keeps as much as fits
//! (`stage_choice`): the time of a step is a longest path through the durations of all actions, so no
//! stage gains from computing more again than it has to.

mod bound;
mod candidate;
mod cuts;
mod described;
mod plan;
mod request;
mod search;
mod simple;
mod stage_bounds;
mod stage_choice;
mod tight_bound;
mod times;

pub use described::Described;
pub use plan::{CertifiedPlan, Plan};
pub use request::{Costed, FollowCosts, Link, MakeSchedule, NamedOrder, PlanRequest, Worker};
pub use search::Planner;
pub use times::{Times, Work, simulator_costs};
