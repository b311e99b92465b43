//! Why a run cannot be recorded, read back or shown.

use std::io;
use std::path::PathBuf;

use gpipe_sched::ScheduleError;

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong, in one line that names the path and ends with a mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder of a new run is there already, and is not to be overwritten.
    #[error("{}: exists already: choose another folder, or overwrite it", .path.display())]
    FolderExists {
        /// The folder.
        path: PathBuf,
    },
    /// What is to be overwritten is no folder.
    #[error("{}: is no folder, and only folders are overwritten: choose another name", .path.display())]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// The folder to be overwritten holds something, but no run.
    #[error(
        "{}: is neither empty nor the folder of a run, and only those are overwritten: choose another folder, \
         or empty it",
        .path.display()
    )]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of a new run cannot be made, or its earlier files cannot be removed.
    #[error("{}: {source}: choose a folder that can be made", .path.display())]
    FolderNotMade {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Every name that a new run could have is taken.
    #[error("no name is free in {}: choose a folder for the run", .runs.display())]
    NoFreeName {
        /// The folder of all runs.
        runs: PathBuf,
    },
    /// A folder, or a file in it, is not what a run leaves.
    #[error("{}: {fault}", .path.display())]
    Damaged {
        /// The folder or the file.
        path: PathBuf,
        /// What is wrong with it, and a mend.
        fault: String,
    },
    /// A record of timelines contradicts itself.
    #[error("{fault}")]
    Record {
        /// What is wrong with it.
        fault: String,
    },
    /// The spans of a timeline are those of no schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A page of no run, or of more than two.
    #[error("{count} runs are asked for: a page shows one, or two side by side")]
    RunCount {
        /// How many there are.
        count: usize,
    },
    /// The page cannot be written.
    #[error("{}: {source}: name a file that can be written", .path.display())]
    PageNotWritten {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A curve cannot be drawn.
    #[error("cannot draw the curve: {fault}")]
    Curve {
        /// What the drawing library says.
        fault: String,
    },
    /// A value has no JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] gpipe_files::Error),
}

impl Error {
    /// Whether the fault lies in what was asked for, and nothing was left behind: a wrong folder or a
    /// damaged file, but no write that failed on its way.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::FolderExists { .. }
            | Self::NotAFolder { .. }
            | Self::NotARun { .. }
            | Self::FolderNotMade { .. }
            | Self::NoFreeName { .. }
            | Self::Damaged { .. }
            | Self::Record { .. }
            | Self::Schedule(_)
            | Self::RunCount { .. }
            | Self::PageNotWritten { .. } => true,
            Self::Curve { .. } | Self::Json(_) => false,
            Self::File(error) => error.is_input_error(),
        }
    }
}
