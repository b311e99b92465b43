//! Writing files whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::error::{Error, Result};

/// Makes a file that is not there yet; neither a file nor a link of that name is touched.
///
/// # Errors
/// [`Fault::Write`](crate::Fault::Write), also where something has the name.
pub fn create_new(path: &Path) -> Result<File> {
    File::create_new(path).map_err(Error::write(path))
}

/// Writes a file in the place of the one that may stand there. A reader sees the old bytes or the new
/// ones, also after the process was killed in between.
///
/// The bytes go to a file of their own in the same folder, `.NAME.PID-N.new`, which is renamed when it
/// is whole and removed if it cannot be. Nothing is synced: after a loss of power the file may be
/// empty.
///
/// # Errors
/// [`Fault::Write`](crate::Fault::Write); the file is then what it was before.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = || {
        let (new, mut file) = unfinished(path)?;
        let renamed = file.write_all(bytes).and_then(|()| {
            drop(file);
            fs::rename(&new, path)
        });
        if renamed.is_err() {
            let _ = fs::remove_file(&new);
        }
        renamed
    };
    written().map_err(Error::write(path))
}

/// A new file beside `path` under a name that no other process writes to.
fn unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    const MOST: u32 = 100;
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    // A killed process of the same number may have left some.
    for number in 0..MOST {
        let mut unfinished = OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}-{number}.new", process::id()));
        let new = path.with_file_name(unfinished);
        match File::create_new(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (new, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Removes a file, and says whether there was one.
///
/// # Errors
/// [`Fault::Write`](crate::Fault::Write) if it is there and cannot be removed.
pub fn remove_if_exists(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::write(path)(error)),
    }
}

/// Waits until the names in a folder would survive a loss of power. Where folders cannot be opened
/// (Windows), names are as safe as the system makes them.
///
/// # Errors
/// Those of the file system.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match cfg!(unix) {
        true => File::open(path)?.sync_all(),
        false => Ok(()),
    }
}
