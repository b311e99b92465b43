//! Why a file cannot be read or written.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of an access to a file.
pub type Result<T> = std::result::Result<T, Error>;

/// A path, what is wrong with it, and what to do about it: one line.
///
/// ```
/// use gpipe_files::{Error, Fault};
///
/// let error = Error::new("a/b.json", Fault::NotRegular, "put a file in its place");
/// assert_eq!(error.to_string(), "a/b.json: is no regular file: put a file in its place");
/// ```
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    fault: Fault,
    mend: String,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A link where the file itself is asked for.
    Link,
    /// A folder, a pipe or a device.
    NotRegular,
    /// More bytes than the cap allows.
    TooLarge {
        /// Length of the file.
        bytes: u64,
        /// Most bytes that are read.
        cap: u64,
    },
    /// The file cannot be found, opened or read.
    Read(io::Error),
    /// The file or folder cannot be made, written, renamed, removed or synced.
    Write(io::Error),
}

impl Error {
    /// An error whose message ends with `mend`; nothing is appended if that is empty.
    pub fn new(path: impl Into<PathBuf>, fault: Fault, mend: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            fault,
            mend: mend.into(),
        }
    }

    /// Wraps an error of reading `path`; for use with `map_err`.
    pub fn read(path: &Path, mend: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::new(path, Fault::Read(source), mend)
    }

    /// Wraps an error of writing `path`; for use with `map_err`.
    pub fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::new(path, Fault::Write(source), "")
    }

    /// The same error with another mend.
    #[must_use]
    pub fn with_mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = mend.into();
        self
    }

    /// The path as it was handed over.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// What is wrong with it, for an error of another type.
    pub fn into_fault(self) -> Fault {
        self.fault
    }

    /// What to do about it; may be empty.
    pub fn mend(&self) -> &str {
        &self.mend
    }

    /// Whether nothing stands under the path.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.fault, Fault::Read(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the fault lies in the file that was named, and nothing was written: all faults but
    /// [`Fault::Write`].
    pub fn is_input_error(&self) -> bool {
        !matches!(self.fault, Fault::Write(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Write(source) => write!(f, "cannot write {}: {source}", self.path.display())?,
            fault if self.path.as_os_str().is_empty() => write!(f, "\"\": {fault}")?,
            fault => write!(f, "{}: {fault}", self.path.display())?,
        }
        match self.mend.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.mend),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => f.write_str("is a link"),
            Self::NotRegular => f.write_str("is no regular file"),
            Self::TooLarge { bytes, cap } => write!(
                f,
                "{bytes} bytes are too many: {cap} are the most that is read"
            ),
            Self::Read(source) => source.fmt(f),
            Self::Write(source) => write!(f, "cannot be written: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Read(source) | Fault::Write(source) => Some(source),
            _ => None,
        }
    }
}
