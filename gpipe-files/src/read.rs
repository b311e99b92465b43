//! Opening and reading files of a folder that nobody vouches for.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Fault, Result};

/// Whether a file may be a link to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// As in the cache of Hugging Face, where every file is a link.
    Followed,
    /// For names that were read from another file, which could point anywhere.
    Refused,
}

/// Options with which opening never waits for the other end of a pipe, and fails for a link unless links
/// are followed. Where the system has no such flags (Windows), they are those of the standard library.
pub fn open_options(links: Links) -> OpenOptions {
    let options = OpenOptions::new();
    #[cfg(unix)]
    let options = with_flags(options, links);
    #[cfg(not(unix))]
    let _ = links;
    options
}

#[cfg(unix)]
fn with_flags(mut options: OpenOptions, links: Links) -> OpenOptions {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;

    let flags = match links {
        Links::Followed => OFlags::NONBLOCK,
        Links::Refused => OFlags::NONBLOCK | OFlags::NOFOLLOW,
    };
    // Flags are bits: the sign means nothing.
    options.custom_flags(flags.bits().cast_signed());
    options
}

/// Opens a regular file and gives its length in bytes. Anything else is refused before it is opened:
/// a pipe would wait for a writer, and a device never ends.
///
/// `mend` ends the message where the file is missing, unreadable, too large or none: what the user can do about it.
///
/// # Errors
/// [`Fault::Link`], [`Fault::NotRegular`] or [`Fault::Read`].
pub fn open_regular(path: &Path, links: Links, mend: &str) -> Result<(File, u64)> {
    let of_place = match mend {
        "" => "put one in its place",
        mend => mend,
    };
    let no_file = || Error::new(path, Fault::NotRegular, of_place);
    let found = match links {
        Links::Followed => fs::metadata(path),
        Links::Refused => fs::symlink_metadata(path),
    };
    let found = found.map_err(Error::read(path, mend))?;
    if found.is_symlink() {
        let mend = "put the file itself in its place";
        return Err(Error::new(path, Fault::Link, mend));
    }
    if !found.is_file() {
        return Err(no_file());
    }
    let opened = open_options(links).read(true).open(path);
    let file = opened.map_err(Error::read(path, mend))?;
    // Something else may have taken the name in between.
    let opened = file.metadata().map_err(Error::read(path, mend))?;
    if !opened.is_file() {
        return Err(no_file());
    }
    Ok((file, opened.len()))
}

/// Reads a regular file of at most `cap` bytes; nothing is allocated for a larger one.
///
/// `mend` as for [`open_regular`].
///
/// # Errors
/// Those of [`open_regular`], and [`Fault::TooLarge`].
pub fn read_capped(path: &Path, cap: u64, links: Links, mend: &str) -> Result<Vec<u8>> {
    let (file, bytes) = open_regular(path, links, mend)?;
    if bytes > cap {
        return Err(Error::new(path, Fault::TooLarge { bytes, cap }, mend));
    }
    let mut read = Vec::new();
    // The file may grow meanwhile.
    let result = file.take(cap).read_to_end(&mut read);
    result.map_err(Error::read(path, mend))?;
    Ok(read)
}
