//! Why a model cannot be read or written.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use gpipe_sched::PipelineError;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model cannot be read or written: one line that names the file and what is wrong in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or read.
    #[error(transparent)]
    File(#[from] gpipe_files::Error),
    /// A file is not what it should be, or does not fit the others or the model.
    #[error("{}: {}", path.display(), OneLine(fault))]
    Invalid {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// Bytes without a path are not what they should be.
    #[error("{}", OneLine(.0))]
    Malformed(String),
    /// A tensor was asked for that no parameter of the model is named like.
    #[error("no weights for {0}: it is no parameter of the model")]
    UnknownParameter(String),
    /// A stage could not be given its weights.
    #[error(transparent)]
    Load(PipelineError),
    /// Tied parameters could not be given the values of their owners.
    #[error(transparent)]
    ShareTies(PipelineError),
    /// There is no `config.json` for such a model, or its values are not those of its parameters.
    #[error("a model cannot be written: {}", OneLine(.0))]
    NotWritable(String),
    /// The weights could not be written as bytes.
    #[error(transparent)]
    Save(#[from] gpipe_tensor::Error),
    /// The `config.json` could not be written as bytes.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A text with names from files, in one line: control characters are escaped.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

impl Error {
    /// Whether what was asked for cannot be done, as opposed to a failure on the way.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::ShareTies(_) | Self::Save(_) | Self::Json(_) => false,
            Self::File(_)
            | Self::Invalid { .. }
            | Self::Malformed(_)
            | Self::UnknownParameter(_)
            | Self::Load(_)
            | Self::NotWritable(_) => true,
        }
    }
}
