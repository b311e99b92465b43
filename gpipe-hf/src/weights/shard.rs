//! A safetensors file whose header was checked.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use gpipe_files::{Links, open_regular};
use gpipe_tensor::safetensors::{Entry, Header, PREFIX};

use crate::error::{Error, Result};

/// A safetensors file.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    /// Workers read it one at a time.
    file: Mutex<File>,
    /// Where its data begin.
    data: u64,
    /// What to do where it cannot be read.
    mend: &'static str,
}

/// A tensor of one of several files.
#[derive(Debug)]
pub struct Located {
    /// The number of the file.
    pub shard: usize,
    /// Where in it, and what of.
    pub entry: Entry,
}

impl Shard {
    /// Opens a file and checks its header against its length. Errors of reading end with the mend.
    pub fn open(path: PathBuf, mend: &'static str) -> Result<(Self, Header)> {
        let fault = |error: &dyn fmt::Display| Error::Invalid {
            path: path.clone(),
            fault: error.to_string(),
        };
        let unreadable = |error| gpipe_files::Error::read(&path, mend)(error);
        let (mut file, length) = open_regular(&path, Links::Followed, mend)?;
        let mut prefix = [0; PREFIX];
        if length < PREFIX as u64 {
            return Err(fault(&format!("{length} bytes are too few for weights")));
        }
        file.read_exact(&mut prefix).map_err(unreadable)?;
        let header_length = Header::length(prefix, length).map_err(|error| fault(&error))?;
        let mut header = Vec::new();
        (&mut file)
            .take(header_length)
            .read_to_end(&mut header)
            .map_err(unreadable)?;
        let data = PREFIX as u64 + header_length;
        let header = Header::parse(&header, length - data).map_err(|error| fault(&error))?;
        let shard = Self {
            file: Mutex::new(file),
            data,
            path,
            mend,
        };
        Ok((shard, header))
    }

    /// The error for what is wrong in the file.
    pub fn fault(&self, fault: impl fmt::Display) -> Error {
        Error::Invalid {
            path: self.path.clone(),
            fault: fault.to_string(),
        }
    }

    /// The bytes of a tensor, which the length of the file has room for.
    pub fn bytes(&self, entry: &Entry) -> Result<Vec<u8>> {
        let range = entry.range();
        let mut bytes = Vec::new();
        let length = usize::try_from(range.end - range.start).ok();
        let room = length.map(|length| bytes.try_reserve_exact(length));
        let (Some(length), Some(Ok(()))) = (length, room) else {
            return Err(self.fault(format!(
                "no memory for the {} bytes of `{}`",
                range.end - range.start,
                entry.name()
            )));
        };
        bytes.resize(length, 0);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file
            .seek(SeekFrom::Start(self.data + range.start))
            .and_then(|_| file.read_exact(&mut bytes));
        read.map_err(gpipe_files::Error::read(&self.path, self.mend))?;
        Ok(bytes)
    }
}
