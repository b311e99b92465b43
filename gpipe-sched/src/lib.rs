#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod executor;
mod groups;
mod schedule;
mod schedule_kind;
mod simulate;

pub use executor::batch::{Item, ItemOf};
pub use executor::empty::Empty;
pub use executor::failure::{PipelineError, Place};
pub use executor::gauge::Gauge;
pub use executor::inference::{CollectOutputs, InferenceError, InferenceStage};
pub use executor::loss_stage::LossStage;
pub use executor::part::Part;
pub use executor::pipeline::Pipeline;
pub use executor::stage::{MicroBatch, Ran, Stage};
pub use executor::step::Outcome;
pub use executor::transport::{Deliver, InMemory, Parcel, Transport};
pub use executor::watchdog::{Doing, Stuck};
pub use executor::wire::{Codec, Reader, Route, Writer};
pub use executor::world::{Label, World};
pub use groups::{GroupSums, Groups};
pub use schedule::action::{Action, ActionError, Op};
pub use schedule::builders::alternating::{gpipe, one_f_one_b};
pub use schedule::builders::dualpipe_v::dualpipe_v;
pub use schedule::builders::forward_only::forward_only;
pub use schedule::builders::interleaved::interleaved;
pub use schedule::builders::looped_bfs::looped_bfs;
pub use schedule::builders::split::{zb_h1, zb_h2};
pub use schedule::builders::v_shape::{v_half, v_min};
pub use schedule::builders::zb_v::zb_v;
pub use schedule::csv::CsvError;
pub use schedule::data::Schedule;
pub use schedule::fault::{Cell, Fault, ScheduleError};
pub use schedule::portal::Portal;
pub use schedule::slots::Slots;
pub use schedule::transfer::Direction;
pub use schedule_kind::{BuildScheduleError, ParseScheduleError, ScheduleKind};
pub use simulate::bubble_breakdown::{BubbleBreakdown, Cause, Gap};
pub use simulate::costs::{Costs, LinkCosts, PortalCosts, StageCosts};
pub use simulate::costs_error::CostsError;
pub use simulate::level::{Held, Level};
pub use simulate::shared::simulate_shared;
pub use simulate::simulator::{simulate, step_seconds};
pub use simulate::timeline::{Span, Timeline};
pub use simulate::zero_bubble::{ZeroBubbleError, zero_bubble};
