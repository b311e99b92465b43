//! A file of tensors, read piece by piece.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// An open file.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    /// Workers read it one at a time.
    file: Mutex<File>,
    /// What to do where it cannot be read.
    mend: &'static str,
}

impl TensorFile {
    pub fn new(path: PathBuf, file: File, mend: &'static str) -> Self {
        Self {
            path,
            file: Mutex::new(file),
            mend,
        }
    }

    /// The error for what is wrong in the file.
    pub fn fault(&self, fault: impl fmt::Display) -> Error {
        Error::Invalid {
            path: self.path.clone(),
            fault: fault.to_string(),
        }
    }

    /// The bytes of a tensor, or some of them, which the length of the file has room for.
    pub fn bytes(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let length = usize::try_from(range.end - range.start).ok();
        let room = length.map(|length| bytes.try_reserve_exact(length));
        let (Some(length), Some(Ok(()))) = (length, room) else {
            return Err(self.fault(format!(
                "no memory for the {} bytes of `{name}`",
                range.end - range.start
            )));
        };
        bytes.resize(length, 0);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file
            .seek(SeekFrom::Start(range.start))
            .and_then(|_| file.read_exact(&mut bytes));
        read.map_err(gpipe_files::Error::read(&self.path, self.mend))?;
        Ok(bytes)
    }
}
