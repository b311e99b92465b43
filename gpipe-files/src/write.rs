//! Writing files whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::error::{Error, Fault, Result};
#[cfg(unix)]
use crate::read::open_regular;
use crate::read::{Links, open_options};

/// Makes a file that is not there yet; neither a file nor a link of that name is touched.
///
/// # Errors
/// [`Fault::Write`], also where something has the name.
pub fn create_new(path: &Path) -> Result<File> {
    File::create_new(path).map_err(Error::write(path))
}

/// Fails unless a regular file stands under the path, or nothing: what follows a link may change a file
/// that is somebody else's, and a pipe waits for a reader.
///
/// # Errors
/// [`Fault::Link`] or [`Fault::NotRegular`].
pub fn check_writable(path: &Path) -> Result<()> {
    let remove = "remove it, or choose another name";
    let (fault, mend) = match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => (Fault::Link, remove),
        Ok(found) if found.is_dir() => {
            let move_away = "move that folder away, or choose another name";
            (Fault::NotRegular, move_away)
        }
        Ok(found) if !found.is_file() => (Fault::NotRegular, remove),
        _ => return Ok(()),
    };
    Err(Error::new(path, fault, mend))
}

/// Opens a regular file to read it and to append to it, and makes it if there is none. Neither a link is
/// followed nor a pipe waited for.
///
/// # Errors
/// Those of [`check_writable`], and [`Fault::Write`].
pub fn append(path: &Path) -> Result<File> {
    check_writable(path)?;
    let mut options = open_options(Links::Refused);
    let opened = options.read(true).append(true).create(true).open(path);
    let file = opened.map_err(Error::write(path))?;
    // Something else may have taken the name in between.
    match file.metadata().map_err(Error::write(path))?.is_file() {
        true => Ok(file),
        false => Err(Error::new(path, Fault::NotRegular, "remove it")),
    }
}

/// Gives a file that has several names (hard links, as in a copy by `cp -l`) bytes of its own under this
/// one, so that appending to it changes no other.
///
/// # Errors
/// Those of [`replace`].
pub fn separate(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;

        let found = fs::symlink_metadata(path);
        if found.is_ok_and(|found| found.is_file() && found.nlink() > 1) {
            let (mut file, _) = open_regular(path, Links::Refused, "")?;
            return replace_with(path, |new| io::copy(&mut file, new).map(drop));
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// [`replace_with`] for bytes in memory.
///
/// # Errors
/// Those of [`replace_with`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_with(path, |file| file.write_all(bytes))
}

/// [`replace`], after which the bytes survive a loss of power: before it they are the old ones.
///
/// # Errors
/// Those of [`replace_with`].
pub fn replace_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_by(path, |file| {
        file.write_all(bytes)?;
        file.sync_all()
    })?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    sync_folder(folder.unwrap_or(Path::new("."))).map_err(Error::write(path))
}

/// Writes a file in the place of the one that may stand there. A reader sees the old bytes or the new
/// ones, also after the process was killed in between.
///
/// The bytes go to a file of their own in the same folder, `.gpipe-PID-N.new`, which has the permissions of the old one,
/// is renamed when it is whole and removed if it cannot be. Nothing is synced: after a loss of power the file may be
/// empty.
///
/// # Errors
/// Those of [`check_writable`], and [`Fault::Write`]; the file is then what it was before.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    replace_by(path, |file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    })
}

fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    check_writable(path)?;
    let written = || {
        let (new, mut file) = unfinished(path)?;
        let renamed = write(&mut file).and_then(|()| fs::rename(&new, path));
        if renamed.is_err() {
            let _ = fs::remove_file(&new);
        }
        renamed
    };
    written().map_err(Error::write(path))
}

/// A new file beside `path` under a name that no other process writes to, with the permissions of the file whose place
/// it takes. Its own name has room where that of `path` is as long as names may be.
fn unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    const MOST: u32 = 100;
    if path.file_name().is_none() {
        return Err(ErrorKind::InvalidInput.into());
    }
    #[cfg(unix)]
    let old = fs::symlink_metadata(path).ok().map(|old| old.permissions());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // From the start, so that nobody opens it who may not read the old one.
    #[cfg(unix)]
    if let Some(old) = &old {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

        options.mode(old.mode());
    }
    // A killed process of the same number may have left some.
    for number in 0..MOST {
        let new = path.with_file_name(format!(".gpipe-{}-{number}.new", process::id()));
        match options.open(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // What the umask took away; not every file system has permissions.
                #[cfg(unix)]
                if let Some(old) = old {
                    let _ = file.set_permissions(old);
                }
                return Ok((new, file));
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Removes a file, and says whether there was one.
///
/// # Errors
/// [`Fault::Write`] if it is there and cannot be removed.
pub fn remove_if_exists(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::write(path)(error)),
    }
}

/// Makes a folder that is not there yet, and those above it; the names of all of them would survive a
/// loss of power.
///
/// # Errors
/// Those of the file system; [`ErrorKind::AlreadyExists`] if something has the name.
pub fn make_folder(path: &Path) -> io::Result<()> {
    make_folder_with(path, sync_folder)
}

fn make_folder_with(path: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let above = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    };
    let parents = path.ancestors().skip(1);
    let missing = parents.take_while(|parent| !parent.as_os_str().is_empty() && !parent.exists());
    let missing: Vec<&Path> = missing.collect();
    for parent in missing.into_iter().rev() {
        match fs::create_dir(parent) {
            // Another process makes it as well.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        sync(&above(parent))?;
    }
    fs::create_dir(path)?;
    sync(&above(path))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_new_folders_are_synced() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut synced = Vec::new();
        let mut make = |path: &Path| {
            make_folder_with(path, |path| {
                synced.push(path.to_owned());
                Ok(())
            })
        };
        make(&root.join("a/b/run")).unwrap();
        make(&root.join("a/run")).unwrap();
        let taken = make(&root.join("a/run")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        let [a, b] = ["a", "a/b"].map(|name| root.join(name));
        assert_eq!(synced, [root.to_owned(), a.clone(), b, a]);
    }

    #[test]
    fn what_survives_a_loss_of_power_takes_the_place_of_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        for bytes in [&b"old"[..], b"new"] {
            replace_durably(&path, bytes).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace_durably(folder.path(), b"no file").is_err());
    }
}
