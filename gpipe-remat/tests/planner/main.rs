//! The planner against every plan there is, on small questions drawn at random.

mod small;

mod exhaustive;

mod certificates;

mod hosts;

mod large;
mod mends;

mod refusals;

mod portals;

mod simple;

mod models;

mod table;
