//! What keeps a checkpoint from being used.

use std::fmt;
use std::io;

use super::names;

/// The first thing in a checkpoint's folder that is not what was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A listed file is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A file that is not listed is there: a reader may take it for a part of the checkpoint.
    #[error("{0} is not in the manifest: {mend}", mend = extra_mend(.0))]
    Extra(String),
    /// A link, a pipe, a device, or a folder where a file should be.
    #[error("{0} is no regular file: put the file itself in its place, or remove it")]
    NotAFile(String),
    /// The checkpoint is no folder.
    #[error("is no folder: remove it, or give it another name")]
    NotAFolder,
    /// A file has been cut off or has grown.
    #[error("{name} has {got} bytes, not {expected}")]
    Length {
        /// The file.
        name: String,
        /// By the manifest.
        expected: u64,
        /// By the file system.
        got: u64,
    },
    /// A file holds something else than what was written.
    #[error("{0} does not have its digest")]
    Changed(String),
    /// The manifest is not what its own digest says.
    #[error("manifest.json {0}")]
    Manifest(String),
    /// The manifest is as it was written, by another version or by something else.
    #[error("manifest.json {0}: use the version of gpipe that wrote it")]
    Format(String),
    /// The manifest is that of another checkpoint.
    #[error("manifest.json is of step {0}: name the folder {name}", name = names::of_step(*.0))]
    Step(u64),
    /// The checkpoint holds more than the limit, this machine's memory.
    #[error(
        "its {needed} bytes are more than the {there} that this machine has: use one with more memory"
    )]
    TooLarge {
        /// Bytes of all its files.
        needed: u64,
        /// The limit.
        there: u64,
    },
    /// A file cannot be read.
    #[error("{name}: {source}: make it readable, or use another checkpoint by its name")]
    Unreadable {
        /// The file, or the folder.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl Fault {
    /// Whether bytes are not those that were written. Anything else is no damage: a file that cannot be
    /// read, one that somebody added, another version's format.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Missing(_) | Self::Length { .. } | Self::Changed(_) | Self::Manifest(_) => true,
            Self::Extra(_)
            | Self::NotAFile(_)
            | Self::NotAFolder
            | Self::Format(_)
            | Self::Step(_)
            | Self::TooLarge { .. }
            | Self::Unreadable { .. } => false,
        }
    }

    /// Wraps an error of reading the file of this name.
    pub(crate) fn unreadable(name: &str) -> impl FnOnce(io::Error) -> Self {
        let name = name.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(name),
            _ => Self::Unreadable { name, source },
        }
    }
}

/// What to do about a file that is not listed. NFS keeps one that was deleted while it was open under
/// such a name: removed, it comes back.
fn extra_mend(name: &str) -> &'static str {
    match name.rsplit('/').next() {
        Some(name) if name.starts_with(".nfs") => "end the process that holds it open",
        _ => "remove it",
    }
}

/// A checkpoint that was passed over, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Its step.
    pub step: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not whole: {}",
            names::of_step(self.step),
            self.fault
        )
    }
}
