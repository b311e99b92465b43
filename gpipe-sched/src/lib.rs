#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod action;
mod builders;
mod check;
mod failure;
mod fault;
mod hop;
mod mailbox;
mod pipeline;
mod schedule;
mod stage;
mod sync;
mod timeline;
mod walk;
mod worker;

pub use action::{Action, ActionError, Op};
pub use builders::{forward_only, gpipe, one_f_one_b};
pub use failure::{Part, PipelineError, Place};
pub use fault::{Cell, Fault, ScheduleError};
pub use hop::Direction;
pub use pipeline::{Item, ItemOf, Outcome, Pipeline};
pub use schedule::Schedule;
pub use stage::{MicroBatch, Stage, Turn};
pub use timeline::{Span, Timeline};
