#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod action;
mod builders;
mod check;
mod costs;
mod csv;
mod early;
mod empty;
mod failure;
mod fault;
mod grid;
mod hop;
mod idle;
mod mailbox;
mod memory;
mod pipeline;
mod round;
mod schedule;
mod shared;
mod simulate;
mod slots;
mod stage;
mod sync;
mod timeline;
mod trace;
mod walk;
mod watchdog;
mod worker;

pub use action::{Action, ActionError, Op};
pub use builders::{
    ZeroBubbleError, dualpipe_v, forward_only, gpipe, interleaved, looped_bfs, one_f_one_b, v_half,
    v_min, zb_h1, zb_h2, zb_v, zero_bubble,
};
pub use costs::{Costs, CostsError, LinkCosts, StageCosts};
pub use csv::CsvError;
pub use empty::Empty;
pub use failure::{Part, PipelineError, Place};
pub use fault::{Cell, Fault, ScheduleError};
pub use hop::Direction;
pub use idle::{Cause, Gap, Spent};
pub use memory::{Held, Level};
pub use pipeline::{Item, ItemOf, Outcome, Pipeline};
pub use schedule::Schedule;
pub use shared::simulate_shared;
pub use simulate::{simulate, step_seconds};
pub use slots::Slots;
pub use stage::{MicroBatch, Ran, Stage, Turn};
pub use timeline::{Span, Timeline};
pub use watchdog::{Doing, Stuck};
