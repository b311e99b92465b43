//! What can go wrong in this crate.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::fault::{Fault, Skipped};
use crate::names;

/// Any error.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why nothing was saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder is neither a run nor a checkpoint.
    #[error("{}: {what}: name the folder of a run or of a checkpoint", .folder.display())]
    NotARun {
        /// The folder as it was named.
        folder: PathBuf,
        /// Why it is neither.
        what: String,
    },
    /// A run without a checkpoint that is whole.
    #[error("{}: {}: name another run, or begin anew", .folder.display(), why(.skipped))]
    NoCheckpoint {
        /// The folder of its checkpoints.
        folder: PathBuf,
        /// Those that are not whole, newest first.
        skipped: Vec<Skipped>,
    },
    /// The checkpoint that was named is not whole.
    #[error("{}: {fault}; the run's folder instead finds the newest that is whole", .folder.display())]
    NotWhole {
        /// Its folder.
        folder: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The checkpoint cannot be read as it is, but its bytes are not known to be damaged. No older one is
    /// taken in its place.
    #[error("{}: {fault}", .folder.display())]
    Refused {
        /// Its folder.
        folder: PathBuf,
        /// What is in the way, with its mend.
        fault: Fault,
    },
    /// The checkpoint was saved by another run than the one in whose folder it lies.
    #[error(
        "{}: belongs to another run, {id}: move it out of this run's folder, or use it by its own name",
        .folder.display()
    )]
    OtherRun {
        /// Its folder.
        folder: PathBuf,
        /// The run that saved it.
        id: String,
    },
    /// The checkpoint cannot be used for this model, or changed after it was found.
    #[error("{}: {what}", .folder.display())]
    Unusable {
        /// Its folder.
        folder: PathBuf,
        /// The file, and what does not fit.
        what: String,
    },
    /// A run cannot go on in its folder from any checkpoint but the newest.
    #[error(
        "{}: {} is newer: choose a new folder for the run, or resume the run itself",
        .folder.display(),
        names::of_step(*.newest)
    )]
    NotNewest {
        /// The folder of the checkpoint that was named.
        folder: PathBuf,
        /// The newest step saved.
        newest: u64,
    },
    /// Another process writes the run's folder.
    #[error(
        "{}: another gpipe is at work in it: wait until that ends, or choose another folder",
        .run.display()
    )]
    Locked {
        /// The run's folder.
        run: PathBuf,
    },
    /// The run's folder cannot be written.
    #[error("{0}: make the folder of the run writable, or choose another one")]
    ReadOnly(#[source] gpipe_files::Error),
    /// The run's folder is not there.
    #[error("{0}: make the folder of the run first, or name another one")]
    NoFolder(#[source] gpipe_files::Error),
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] gpipe_files::Error),
    /// A checkpoint cannot be written or deleted.
    #[error(transparent)]
    Write(#[from] Failure),
    /// The pipeline failed while parameters were put into it.
    #[error(transparent)]
    Pipeline(gpipe_remat::Error),
    /// The checkpoint's files cannot be made: the model's by its closure, or state as JSON.
    #[error("the files of a checkpoint cannot be made: {0}")]
    Files(#[source] BoxedError),
    /// A file of the checkpoint has a name with which no reader takes it; nothing was written.
    #[error(
        "{manifest} {0}: give each file of the model a name of its own, of one to four components between slashes, \
         without `\\`, `:`, control characters, `.` and `..`",
        manifest = names::MANIFEST
    )]
    Names(String),
    /// The thread that saves cannot be started, or panicked.
    #[error("the thread that writes it {0}")]
    Thread(String),
    /// A checkpoint was not saved.
    #[error(
        "the checkpoint of step {step} was not saved, and none before it was changed: {source}"
    )]
    NotSaved {
        /// Its step.
        step: u64,
        /// Why.
        source: Box<Error>,
    },
}

impl Error {
    /// Whether what was asked for cannot be done and nothing was left behind, rather than that
    /// something failed on its way.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::NotARun { .. }
            | Self::NoCheckpoint { .. }
            | Self::NotWhole { .. }
            | Self::Refused { .. }
            | Self::OtherRun { .. }
            | Self::Unusable { .. }
            | Self::NotNewest { .. }
            | Self::Locked { .. }
            | Self::ReadOnly(_)
            | Self::NoFolder(_) => true,
            Self::File(error) => error.is_input_error(),
            Self::Write(_)
            | Self::Pipeline(_)
            | Self::Files(_)
            | Self::Names(_)
            | Self::Thread(_)
            | Self::NotSaved { .. } => false,
        }
    }
}

fn why(skipped: &[Skipped]) -> String {
    let why: Vec<String> = skipped.iter().map(Skipped::to_string).collect();
    match why.is_empty() {
        true => "it holds no checkpoint".to_owned(),
        false => format!("no checkpoint is whole: {}", why.join("; ")),
    }
}
