//! Which run a checkpoint belongs to.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use gpipe_files::{Error as FileError, Fault, Links};
use serde::{Deserialize, Serialize};

use super::error::Result;
use super::names;

/// The file `run.json`, in a run's folder and in each of its checkpoints. A copy of the folder is the same
/// run. Keys of later versions are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Identity {
    /// The version of the program that began the run.
    pub gpipe: String,
    /// 128 random bits in hexadecimal digits.
    pub id: String,
    /// The checkpoint that the run began from.
    pub origin: Option<Origin>,
}

/// A checkpoint of another run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The [`id`](Identity::id) of that run, if it has one.
    pub id: Option<String>,
    /// The step.
    pub step: u64,
}

impl Identity {
    /// A new run's; `gpipe` is the version of the program.
    pub fn new(gpipe: &str) -> Self {
        Self {
            gpipe: gpipe.to_owned(),
            id: random(),
            origin: None,
        }
    }

    /// The same run, begun from the checkpoint of a step of another: `id` is that run's.
    #[must_use]
    pub fn from_checkpoint(mut self, id: Option<String>, step: u64) -> Self {
        self.origin = Some(Origin { id, step });
        self
    }

    /// That of the run in a folder, if it has one.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if the file is there and is none.
    pub fn of_run(folder: &Path) -> Result<Option<Self>> {
        const LARGEST: u64 = 1 << 16;
        const MEND: &str = "restore it, or remove it";
        let path = folder.join(names::RUN);
        let bytes = match gpipe_files::read_capped(&path, LARGEST, Links::Refused, MEND) {
            Err(error) if error.is_not_found() => return Ok(None),
            bytes => bytes?,
        };
        let parsed = serde_json::from_slice(&bytes);
        let identity =
            parsed.map_err(|error| FileError::new(&path, Fault::Read(error.into()), MEND));
        Ok(Some(identity?))
    }

    /// Writes it into the folder of the run, where it survives a loss of power.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    pub fn write(&self, folder: &Path) -> Result<()> {
        let bytes = self.to_bytes()?;
        Ok(gpipe_files::replace_durably(
            &folder.join(names::RUN),
            &bytes,
        )?)
    }

    /// The bytes of the file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_string_pretty(self);
        let json = json.map_err(|error| super::error::Error::Files(error.into()))?;
        Ok((json + "\n").into_bytes())
    }
}

/// 128 random bits in hexadecimal digits.
pub(crate) fn random() -> String {
    // The keys of the standard library's hasher are random numbers of the system.
    let random = RandomState::new();
    let [high, low] = [0, 1].map(|half: u8| random.hash_one(half));
    format!("{high:016x}{low:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run would go on from any checkpoint otherwise.
    #[test]
    fn a_file_that_is_there_and_cannot_be_read_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(names::RUN);
        assert_eq!(Identity::of_run(folder.path()).unwrap(), None);
        let refused = || {
            let told = Identity::of_run(folder.path()).unwrap_err().to_string();
            assert!(
                told.contains(names::RUN) && told.ends_with("restore it, or remove it"),
                "{told}"
            );
        };
        std::fs::write(&path, vec![b' '; (1 << 16) + 1]).unwrap();
        refused();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused();
    }
}
