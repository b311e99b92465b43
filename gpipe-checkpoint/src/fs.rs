//! The calls to the file system, as one small trait: the tests put a disk in its place that is full,
//! that fails, or that loses its power.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use gpipe_files::Links;

/// The kind of a directory entry; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file and its length in bytes.
    File(u64),
    /// A folder.
    Folder,
    /// A link, a pipe, a device: nothing that a checkpoint holds.
    Other,
}

/// The calls. None is repeated or made whole here: a write may take fewer bytes than it was given.
pub trait Fs {
    /// An open file that is written.
    type File;

    /// Makes a folder that is not there yet.
    fn create_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Makes a file that is not there yet.
    fn create(&mut self, path: &Path) -> io::Result<Self::File>;
    /// Appends some of the bytes and gives their number.
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<usize>;
    /// Waits until what the file holds would survive a loss of power.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Waits until the names in a folder would.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Gives a file or folder another name; a file of that name is replaced.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&mut self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&mut self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in order; some may be no text.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// What stands under a name.
    fn kind(&self, path: &Path) -> io::Result<Kind>;
    /// The bytes of a file, to be read one after the other.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + '_>>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Fs for Disk {
    type File = File;

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        gpipe_files::sync_folder(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let found = fs::symlink_metadata(path)?;
        Ok(match found.file_type() {
            kind if kind.is_file() => Kind::File(found.len()),
            kind if kind.is_dir() => Kind::Folder,
            _ => Kind::Other,
        })
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + '_>> {
        let mut options = gpipe_files::open_options(Links::Refused);
        Ok(Box::new(options.read(true).open(path)?))
    }
}

/// Calls made of one that signals interrupt.
const TRIES: usize = 100;

/// Repeats a call that a signal interrupted.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    call()
}
