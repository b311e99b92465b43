#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod basis;
mod checked;
mod clock;
mod error;
mod evaluated_class;
mod event;
mod folder;
mod found_device;
mod found_rank;
mod html;
mod measured_link;
pub mod numbers;
mod planned_portal;
mod predicted_picture;
mod replicated_plan;
mod run;
mod scalars;
mod tensorboard;
mod timeline;

pub use basis::Basis;
pub use checked::Checked;
pub use error::{Error, Result};
pub use evaluated_class::{EvaluatedClass, TakenFor};
pub use event::Event;
pub use folder::{MadeRun, NewRun, PAGE, RunFolder};
pub use found_device::FoundDevice;
pub use found_rank::{FoundMpi, FoundRank};
pub use html::{html, write_html};
pub use measured_link::MeasuredLink;
pub use planned_portal::PlannedPortal;
pub use predicted_picture::{PredictedClass, PredictedPicture};
pub use replicated_plan::ReplicatedPlan;
pub use run::{Resumption, Run, RunEnd, RunStart, RunStep, read_run};
pub use tensorboard::TensorBoard;
pub use timeline::{
    Cut, Cuts, FlatTimeline, Machine, MeasuredStep, Record, RunInfo, StageInfo, Tracer,
};
