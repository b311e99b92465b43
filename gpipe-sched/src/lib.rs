#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod executor;
mod schedule;
mod simulate;

pub use executor::empty::Empty;
pub use executor::failure::{Part, PipelineError, Place};
pub use executor::pipeline::{Item, ItemOf, Outcome, Pipeline};
pub use executor::stage::{MicroBatch, Ran, Stage, Turn};
pub use executor::watchdog::{Doing, Stuck};
pub use schedule::action::{Action, ActionError, Op};
pub use schedule::builders::{
    dualpipe_v, forward_only, gpipe, interleaved, looped_bfs, one_f_one_b, v_half, v_min, zb_h1,
    zb_h2, zb_v,
};
pub use schedule::csv::CsvError;
pub use schedule::data::Schedule;
pub use schedule::fault::{Cell, Fault, ScheduleError};
pub use schedule::hop::Direction;
pub use schedule::slots::Slots;
pub use simulate::costs::{Costs, CostsError, LinkCosts, StageCosts};
pub use simulate::greedy::{ZeroBubbleError, zero_bubble};
pub use simulate::idle::{Cause, Gap, Spent};
pub use simulate::memory::{Held, Level};
pub use simulate::shared::simulate_shared;
pub use simulate::simulator::{simulate, step_seconds};
pub use simulate::timeline::{Span, Timeline};
