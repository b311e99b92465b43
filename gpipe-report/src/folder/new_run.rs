//! Choosing and making the folder of a new run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::names::{CONFIG, EVENTS, LOG, TIMELINE, TRACE, is_until};
use super::run_folder::RunFolder;
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::tensorboard::is_event_file;

/// A folder that does not exist yet, or that may be overwritten. Choosing it makes nothing, so that
/// nothing is left behind if the run turns out to be impossible.
#[derive(Debug)]
pub struct NewRun(Choice);

#[derive(Debug)]
enum Choice {
    /// This folder.
    At { path: PathBuf, overwrite: bool },
    /// A new folder in this one.
    Within(PathBuf),
}

impl NewRun {
    /// The folder `path`, which must not exist unless `overwrite` is true.
    ///
    /// # Errors
    /// [`Error::FolderExists`], [`Error::NotAFolder`], or [`Error::FolderNotMade`] if the path cannot
    /// be looked at.
    pub fn at(path: &Path, overwrite: bool) -> Result<Self> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(not_made(path)(error)),
            Ok(_) if !overwrite => return Err(taken(path)),
            Ok(_) if path.is_dir() => {}
            Ok(_) => return Err(Error::NotAFolder { path: path.into() }),
        }
        Ok(Self(Choice::At {
            path: path.to_owned(),
            overwrite,
        }))
    }

    /// A new folder in `runs`, named after the time and the configuration: `20260102-030405-1a2b3c`.
    pub fn within(runs: &Path) -> Self {
        Self(Choice::Within(runs.to_owned()))
    }

    /// Makes the folder, for a run of this configuration that begins now. The files of a folder that is
    /// to be overwritten stay until [`MadeRun::begin`].
    ///
    /// # Errors
    /// [`Error::FolderExists`] if it appeared in between, [`Error::FolderNotMade`], or
    /// [`Error::NoFreeName`].
    pub fn make(self, config: &str, now: SystemTime) -> Result<MadeRun> {
        let path = match self.0 {
            Choice::At { path, overwrite } => match make(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !overwrite => {
                    return Err(taken(&path));
                }
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(not_made(&path)(error));
                }
                _ => path,
            },
            Choice::Within(runs) => make_within(&runs, config, now)?,
        };
        let config = config.to_owned();
        Ok(MadeRun { path, config, now })
    }
}

/// The folder of a run that can begin as soon as its lock is taken.
#[derive(Debug)]
#[must_use = "the run begins with `begin`"]
pub struct MadeRun {
    path: PathBuf,
    config: String,
    now: SystemTime,
}

impl MadeRun {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the configuration and opens the files that grow. Of an earlier run in the same folder,
    /// the files that this crate wrote are removed and all others left alone; checkpoints are left to
    /// the crate that wrote them.
    ///
    /// `lock` is the right to write the folder, which is held until the [`RunFolder`] is dropped: any
    /// value that gives the right back when it is dropped, or `()`.
    ///
    /// # Errors
    /// [`Error::FolderNotMade`] if earlier files cannot be removed, [`Error::File`] if new ones cannot
    /// be written.
    pub fn begin(self, lock: impl Send + Sync + 'static) -> Result<RunFolder> {
        let Self { path, config, now } = self;
        remove_earlier(&path).map_err(not_made(&path))?;
        RunFolder::create(path, Box::new(lock), &config, now)
    }
}

/// Removes the files of an earlier run, if there are any.
fn remove_earlier(folder: &Path) -> io::Result<()> {
    for name in [CONFIG, LOG, EVENTS, TRACE, TIMELINE] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let ours = |name: &str| is_event_file(name) || is_until(name);
        if entry.file_name().to_str().is_some_and(ours) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// `create_dir` with the folders above it; unlike `create_dir_all` it fails if the folder exists.
fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(path)
}

/// A new folder in `runs`, named after the time and the configuration.
fn make_within(runs: &Path, config: &str, now: SystemTime) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    config.hash(&mut hasher);
    let hash = hasher.finish() & 0xff_ffff;
    let time = rfc3339(now);
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at(8);
    let name = format!("{day}-{time}-{hash:06x}");
    // Runs that begin in the same second get a number.
    for number in 1_u32.. {
        let name = match number {
            1 => name.clone(),
            number => format!("{name}-{number}"),
        };
        let path = runs.join(name);
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(not_made(&path)(error)),
        }
    }
    Err(Error::NoFreeName {
        runs: runs.to_owned(),
    })
}

fn taken(path: &Path) -> Error {
    Error::FolderExists {
        path: path.to_owned(),
    }
}

fn not_made(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::FolderNotMade {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn begin(path: &Path, overwrite: bool, lock: &Arc<()>) -> RunFolder {
        let made = NewRun::at(path, overwrite).unwrap().make("x = 1\n", NOW);
        made.unwrap().begin(Arc::clone(lock)).unwrap()
    }

    #[test]
    fn any_clock_names_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let far = Duration::from_secs(1 << 40);
        for (now, day) in [(NOW - far, "19700101"), (NOW + far, "99991231")] {
            let made = NewRun::within(folder.path()).make("x = 1\n", now).unwrap();
            let name = made.path().file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with(day), "{name}");
        }
    }

    #[test]
    fn only_files_of_a_run_are_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/run");
        let lock = Arc::new(());
        let mut run = begin(&path, false, &lock);
        run.log("first").unwrap();
        run.write_trace(|file| file.write_all(b"{}")).unwrap();
        run.set_timelines_aside(3).unwrap();
        run.write_trace(|file| file.write_all(b"{}")).unwrap();
        for (name, text) in [("notes.txt", "mine"), ("timeline-until-3.json", "mine too")] {
            fs::write(path.join(name), text).unwrap();
        }

        assert!(matches!(
            NewRun::at(&path, false),
            Err(Error::FolderExists { .. })
        ));
        assert!(matches!(
            NewRun::at(&path.join("notes.txt"), true),
            Err(Error::NotAFolder { .. })
        ));

        // The lock is held as long as the folder is open.
        assert_eq!(Arc::strong_count(&lock), 2);
        drop(run);
        assert_eq!(Arc::strong_count(&lock), 1);
        let mut run = begin(&path, true, &lock);
        run.log("second").unwrap();
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "second\n");
        assert_eq!(fs::read_to_string(path.join(CONFIG)).unwrap(), "x = 1\n");
        assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        assert!(!path.join(TRACE).exists());
        assert!(!path.join("trace-until-00000003.json").exists());
        assert!(path.join("timeline-until-3.json").exists());
        let curves = fs::read_dir(&path).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            is_event_file(name.to_str().unwrap())
        });
        assert_eq!(curves.count(), 1);
    }

    #[test]
    fn a_folder_that_is_to_be_overwritten_is_kept_until_the_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        begin(&path, false, &Arc::new(())).log("first").unwrap();
        let made = NewRun::at(&path, true).unwrap().make("x = 2\n", NOW);
        assert_eq!(made.unwrap().path(), path);
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "first\n");
        assert_eq!(fs::read_to_string(path.join(CONFIG)).unwrap(), "x = 1\n");
    }

    #[test]
    fn a_folder_that_appears_in_between_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let chosen = NewRun::at(&path, false).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(
            chosen.make("", NOW),
            Err(Error::FolderExists { .. })
        ));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn runs_of_the_same_second_get_folders_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let now = NOW + Duration::from_secs(1_767_323_045);
        let made = [(); 3].map(|()| NewRun::within(&runs).make("x = 1\n", now).unwrap());
        let names = made.map(|made| {
            let name = made.path().strip_prefix(&runs).unwrap();
            name.to_str().unwrap().to_owned()
        });
        assert_eq!(names[0].len(), "20260102-030405-123456".len());
        assert!(names[0].starts_with("20260102-030405-"));
        assert_eq!(names[1..], [2, 3].map(|n| format!("{}-{n}", names[0])));
    }
}
