//! Opening files of a folder that nobody vouches for.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::fail::{Fail, Result};

/// Whether a file may be a link to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// As in the cache of Hugging Face, where every file is a link.
    Followed,
    /// The name of the file was read from another file, so it could point anywhere.
    Refused,
}

/// What to do where a file of a model cannot be read.
pub const MEND: &str = "name a folder with config.json and model.safetensors";

/// A regular file and its length. Others are refused before they are opened: a pipe would wait for
/// a writer, and a device never ends.
pub fn open(path: &Path, links: Links, mend: &str) -> Result<(File, u64)> {
    let fault = |what: &str| Err(Fail::asked(format!("{}: {what}", path.display())));
    let found = match links {
        Links::Followed => fs::metadata(path),
        Links::Refused => fs::symlink_metadata(path),
    };
    let found = found.map_err(|error| unreadable(path, &error, mend))?;
    if found.is_symlink() {
        return fault("is a link: put the file itself in its place");
    }
    if !found.is_file() {
        return fault("is no regular file: put one in its place");
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error, mend))?;
    let opened = file
        .metadata()
        .map_err(|error| unreadable(path, &error, mend))?;
    if !opened.is_file() {
        return fault("is no regular file: put one in its place");
    }
    Ok((file, opened.len()))
}

/// The bytes of a file that is not larger than `most`.
pub fn read(path: &Path, most: u64, mend: &str) -> Result<Vec<u8>> {
    let (file, length) = open(path, Links::Followed, mend)?;
    if length > most {
        return Err(Fail::asked(format!(
            "{}: {length} bytes are too many: {most} are the most that is read",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let read = file.take(most).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error, mend))?;
    Ok(bytes)
}

/// The error for a file that cannot be read.
pub fn unreadable(path: &Path, error: &std::io::Error, mend: &str) -> Fail {
    Fail::asked(format!("{}: {error}: {mend}", path.display()))
}
