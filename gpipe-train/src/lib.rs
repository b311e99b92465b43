#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod autosave;
mod changes;
pub mod config;
pub mod cost_import;
mod dataset;
mod error;
mod evaluated_classes;
mod evaluation;
mod generate;
#[cfg(any(test, feature = "cuda"))]
mod kernel_cache;
pub mod known_gpus;
mod launch;
#[cfg(feature = "cuda")]
mod launches;
pub mod links;
pub mod machine;
mod memory_limit;
mod model_source;
mod nccl;
mod pace;
mod precision;
mod predict;
mod printable;
pub mod profile;
mod progress;
mod progress_sink;
pub mod ranks;
pub mod recommend;
mod resume;
mod room;
mod run;
mod run_record;
mod search_space;
mod setup;
mod shell;
pub mod text_table;
mod trained_model;
mod training_loop;
pub mod verify;

pub use config::{Overrides, Setting, TrainConfig};
pub use dataset::{
    data_warnings, dataset, end_tokens, held_out_dataset, prompt_tokens, vocabulary,
};
pub use error::{BoxedError, Error, Result, one_line};
pub use evaluation::{Evaluation, evaluation_heading};
pub use generate::beams::Beam;
pub use generate::{Generated, Generation, Generator};
pub use gpipe_mpi::{FoundLibrary, Launcher};
pub use launch::{Launched, found_mpi, is_first_rank, join_launcher};
#[cfg(feature = "cuda")]
pub use launches::step_launches;
pub use model_source::{ModelSource, find};
pub use predict::{Prediction, Predictor, mask_files, write_mask};
pub use printable::{harmless, printable};
pub use progress_sink::{ProgressSink, Silent};
pub use resume::{StartPoint, last_run};
pub use room::has_room;
pub use run::{PreparedRun, RunEnd, RunOptions};
pub use setup::{Forecast, Setup, check_stages, cut, cuts, micro_batches_of, plan_event, unit};
pub use shell::quoted;
pub use trained_model::{check_merge, save_merged};
pub use training_loop::{Recipe, Step, evaluate, train};
