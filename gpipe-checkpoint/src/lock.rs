//! One process at a time writes a run's folder.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use super::error::{Error, Result};

/// The file whose lock is held. It stays when the run ends: a process that removed it could remove one
/// that another process has just made and locked.
const LOCK: &str = ".lock";

/// The right to write a run's folder, until it is dropped or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "holding the file open holds the lock")] File);

impl Lock {
    /// Takes the right to write the folder `run`, in which the file `.lock` is made if there is none.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it, [`Error::NoFolder`] if the folder is not there, [`Error::ReadOnly`] if the
    /// file cannot be written, [`Error::File`] if it is none.
    pub fn take(run: &Path) -> Result<Self> {
        let file = gpipe_files::append(&run.join(LOCK)).map_err(|error| match error.fault() {
            gpipe_files::Fault::Write(source) if source.kind() == ErrorKind::NotFound => {
                Error::NoFolder(error)
            }
            gpipe_files::Fault::Write(_) => Error::ReadOnly(error),
            _ => error.into(),
        })?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Error::Locked {
                run: run.to_owned(),
            }),
            // Some network file systems have no locks; there it is up to the user.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).err().unwrap();
        assert!(error.is_input_error());
        assert!(error.to_string().contains("another gpipe is at work"));
        drop(first);
        Lock::take(folder.path()).unwrap();
    }

    /// A file in the place of the folder stands for one that is read-only, which is none to root.
    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_a_mend() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (run, mend) in [
            (file, "make the folder of the run writable"),
            (
                folder.path().join("none"),
                "make the folder of the run first",
            ),
        ] {
            let error = Lock::take(&run).unwrap_err();
            assert!(error.is_input_error());
            assert!(error.to_string().contains(mend), "{error}");
        }
    }
}
