//! A safetensors file whose header was checked.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use gpipe_files::{Links, open_regular};
use gpipe_tensor::safetensors::{Entry, Header, PREFIX};

use crate::error::{Error, Result};
use crate::tensor_file::TensorFile;

/// A safetensors file.
#[derive(Debug)]
pub struct Shard {
    file: TensorFile,
    /// Where its data begin.
    data: u64,
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
    /// Opens a file and checks its header against its length. Errors end with the mend.
    pub fn open(path: PathBuf, mend: &'static str) -> Result<(Self, Header)> {
        let fault = |error: &dyn fmt::Display| Error::Invalid {
            path: path.clone(),
            fault: format!("{error}: {mend}"),
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
            file: TensorFile::new(path, file, mend),
            data,
        };
        Ok((shard, header))
    }

    /// The error for what is wrong in the file.
    pub fn fault(&self, fault: impl fmt::Display) -> Error {
        self.file.fault(fault)
    }

    /// The bytes of a tensor.
    pub fn bytes(&self, entry: &Entry) -> Result<Vec<u8>> {
        let (file, range) = self.place(entry);
        file.bytes(entry.name(), range)
    }

    /// The file, and where in it a tensor lies: it has room for it.
    pub fn place(&self, entry: &Entry) -> (&TensorFile, Range<u64>) {
        let range = entry.range();
        (&self.file, self.data + range.start..self.data + range.end)
    }
}
