//! One process at a time writes a run's folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::fail::{Fail, Result};

/// The file whose lock is held. It stays when the run ends: removing it could not be told from
/// another process making it anew.
const LOCK: &str = ".lock";

/// The right to write a run's folder, until it is dropped or the process ends in whatever way.
pub struct Lock(#[allow(dead_code, reason = "holding the file open holds the lock")] File);

impl Lock {
    /// Takes the right, or says who is in the way.
    pub fn take(run: &Path) -> Result<Self> {
        let path = run.join(LOCK);
        // To open a pipe would be to wait for whoever reads it.
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            return Err(Fail::asked(format!(
                "{}: is no regular file: remove it",
                path.display()
            )));
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Fail::write(path.display()))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Fail::asked(format!(
                "{}: another gpipe is at work in it: wait until that ends, or choose another folder",
                run.display()
            ))),
            // Some network file systems know no locks; there it is up to the user.
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
        assert!(matches!(Lock::take(folder.path()), Err(Fail::Usage(_))));
        drop(first);
        Lock::take(folder.path()).unwrap();
    }
}
