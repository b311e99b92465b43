//! The run that is in a folder before another takes its place.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process;

use gpipe_files::Links;

use super::names::{CONFIG, EVENTS, LOG, RUN, STARTING, TIMELINE, TRACE, is_until};
use crate::tensorboard::is_event_file;

/// Whether a folder is empty but for a lock, or a run's by a mark that no other program leaves: files may be called
/// `config.toml` and `log.txt` anywhere.
pub(crate) fn is_replaceable(folder: &Path) -> io::Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        // A run that could not even begin may leave the file behind that says who writes the folder.
        is_empty &= name == ".lock";
        if is_event_file(&name.to_string_lossy()) {
            return Ok(true);
        }
    }
    if is_empty {
        return Ok(true);
    }
    let marks = [
        (RUN, "\"gpipe\""),
        (EVENTS, "\"kind\":\""),
        (TIMELINE, "\"gpipe\""),
    ];
    if marks
        .iter()
        .any(|(name, mark)| begins_with(&folder.join(name), mark))
    {
        return Ok(true);
    }
    let checkpoints = fs::read_dir(folder.join("checkpoints"));
    let mut manifests = checkpoints.into_iter().flatten().filter_map(|entry| {
        let manifest = entry.ok()?.path().join("manifest.json");
        Some(begins_with(&manifest, "\"gpipe checkpoint"))
    });
    Ok(manifests.any(|ours| ours))
}

/// Whether a mark stands at the beginning of a regular file.
fn begins_with(path: &Path, mark: &str) -> bool {
    const BEGINNING: u64 = 256;
    let mut bytes = Vec::new();
    let file = gpipe_files::open_regular(path, Links::Refused, "");
    let read = file.map(|(file, _)| file.take(BEGINNING).read_to_end(&mut bytes));
    matches!(read, Ok(Ok(_)))
        && bytes
            .windows(mark.len())
            .any(|part| part == mark.as_bytes())
}

/// Makes the folder in which a run lies until it takes the place of the one before, which it must be
/// able to do.
pub(crate) fn make_aside(folder: &Path) -> io::Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, is_folder) = (entry.file_name(), entry.file_type()?.is_dir());
        let name = name.to_string_lossy();
        if is_folder && name.starts_with(STARTING) {
            // Of a process that was killed: this one has the lock.
            fs::remove_dir_all(entry.path())?;
        } else if is_folder && is_of_run(&name) {
            let fault = format!("{name} is a folder");
            return Err(io::Error::new(ErrorKind::IsADirectory, fault));
        }
    }
    let aside = folder.join(format!("{STARTING}{}", process::id()));
    fs::create_dir(&aside)?;
    Ok(aside)
}

/// Whether a file of this name belongs to the run that is replaced.
fn is_of_run(name: &str) -> bool {
    [CONFIG, LOG, EVENTS, TRACE, TIMELINE].contains(&name) || is_event_file(name) || is_until(name)
}

/// Removes the files of an earlier run, if there are any.
pub(crate) fn remove_earlier(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_of_run) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
