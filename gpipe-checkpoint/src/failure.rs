//! The call of the file system that failed.

use std::io;
use std::path::{Path, PathBuf};

/// The call of a save that failed, and its file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", .path.display())]
pub struct Failure {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Failure {
    /// Wraps the error of an action, a verb; for use with `map_err`.
    pub(crate) fn to(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            action,
            path,
            source,
        }
    }
}
