//! Choosing and making the folder of a new run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpipe_files::make_folder;

use super::earlier;
use super::run_folder::RunFolder;
use crate::clock::rfc3339;
use crate::error::{Error, Result};

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
    /// The folder `path`, which must not exist unless `overwrite` is true; then it may be empty or hold a
    /// run.
    ///
    /// # Errors
    /// [`Error::FolderExists`], [`Error::NotAFolder`], [`Error::NotARun`], or [`Error::FolderNotMade`] if the path cannot
    /// be looked at.
    pub fn at(path: &Path, overwrite: bool) -> Result<Self> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(not_made(path)(error)),
            Ok(_) if !overwrite => return Err(taken(path)),
            Ok(_) if path.is_dir() => check_replaceable(path)?,
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
    /// to be overwritten stay until [`RunFolder::take_place`].
    ///
    /// # Errors
    /// [`Error::FolderExists`] or [`Error::NotARun`] if it appeared in between, [`Error::FolderNotMade`],
    /// or [`Error::NoFreeName`].
    pub fn make(self, config: &str, now: SystemTime) -> Result<MadeRun> {
        let (path, replaces) = match self.0 {
            Choice::At { path, overwrite } => match make_folder(&path) {
                Ok(()) => (path, false),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(not_made(&path)(error));
                }
                Err(_) if !overwrite => return Err(taken(&path)),
                Err(_) => {
                    check_replaceable(&path)?;
                    (path, true)
                }
            },
            Choice::Within(runs) => (make_within(&runs, config, now)?, false),
        };
        Ok(MadeRun {
            path,
            replaces,
            config: config.to_owned(),
            now,
        })
    }
}

/// The folder of a run that can begin as soon as its lock is taken.
#[derive(Debug)]
#[must_use = "the run begins with `begin`"]
pub struct MadeRun {
    path: PathBuf,
    replaces: bool,
    config: String,
    now: SystemTime,
}

impl MadeRun {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the configuration and opens the files that grow; those of a run that replaces another in
    /// the same folder lie aside until [`RunFolder::take_place`].
    ///
    /// `lock` is the right to write the folder, which is held until the [`RunFolder`] is dropped: any
    /// value that gives the right back when it is dropped, or `()`.
    ///
    /// # Errors
    /// [`Error::FolderNotMade`] if earlier files cannot be replaced, [`Error::File`] if new ones cannot
    /// be written.
    pub fn begin(self, lock: impl Send + Sync + 'static) -> Result<RunFolder> {
        let Self {
            path,
            replaces,
            config,
            now,
        } = self;
        let aside = match replaces {
            true => Some(earlier::make_aside(&path).map_err(not_made(&path))?),
            false => None,
        };
        RunFolder::create(path, aside, Box::new(lock), &config, now)
    }
}

/// Fails unless the folder is empty or a run's.
fn check_replaceable(path: &Path) -> Result<()> {
    match earlier::is_replaceable(path).map_err(not_made(path))? {
        true => Ok(()),
        false => Err(Error::NotARun { path: path.into() }),
    }
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
        match make_folder(&path) {
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

    use super::super::names::{CONFIG, EVENTS, LOG, RUN, TIMELINE, TRACE};
    use super::*;
    use crate::tensorboard::is_event_file;

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
        run.log("sec").unwrap();
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "first\n");
        run.take_place().unwrap();
        assert!(!run.replaces());
        run.log("ond").unwrap();
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "sec\nond\n");
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
        let names = || {
            let names = fs::read_dir(&path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let before = names();
        // What a killed process left goes.
        fs::create_dir(path.join(".starting-1")).unwrap();
        let made = NewRun::at(&path, true)
            .unwrap()
            .make("x = 2\n", NOW)
            .unwrap();
        assert_eq!(made.path(), path);
        let mut run = made.begin(()).unwrap();
        assert!(run.replaces() && run.path() == path);
        run.log("second").unwrap();
        run.write_trace(|file| file.write_all(b"{}")).unwrap();
        // It ends before its first step.
        drop(run);
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "first\n");
        assert_eq!(fs::read_to_string(path.join(CONFIG)).unwrap(), "x = 1\n");
        assert_eq!(names(), before);

        // An error about what cannot be replaced comes before anything is replaced.
        fs::create_dir(path.join(TIMELINE)).unwrap();
        let made = NewRun::at(&path, true).unwrap().make("x = 2\n", NOW);
        let error = made.unwrap().begin(()).err().unwrap();
        assert!(
            error.to_string().contains("timeline.json is a folder"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(path.join(LOG)).unwrap(), "first\n");
    }

    /// As on a full disk.
    #[test]
    fn a_run_that_cannot_begin_leaves_no_folder_in_the_way_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let chosen = NewRun::at(&path, false).unwrap();
        let made = chosen.make("x = 1\n", NOW).unwrap();
        fs::write(path.join(".lock"), "").unwrap();
        fs::create_dir(path.join(EVENTS)).unwrap();
        let error = made.begin(()).err().unwrap().to_string();
        assert!(error.contains(EVENTS), "{error}");
        begin(&path, false, &Arc::new(()));
    }

    #[test]
    fn only_a_run_by_its_marks_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        NewRun::at(path, true).unwrap();
        fs::write(path.join(".lock"), "").unwrap();
        NewRun::at(path, true).unwrap();
        fs::create_dir(path.join("checkpoints")).unwrap();
        for name in [CONFIG, LOG, EVENTS, TIMELINE, RUN, "checkpoints/latest"] {
            fs::write(path.join(name), "{\"mine\": 1}\n").unwrap();
            let error = NewRun::at(path, true).unwrap_err();
            assert!(matches!(error, Error::NotARun { .. }) && error.is_input_error());
        }
        fs::create_dir(path.join("checkpoints/step-00000001")).unwrap();
        for (name, mark) in [
            (EVENTS, r#"{"time":"2026-01-02T03:04:05Z","kind":"start"}"#),
            (TIMELINE, r#"{"format":1,"gpipe":"0.1.0"}"#),
            (RUN, "{\n  \"gpipe\": \"0.1.0\"\n}"),
            (
                "checkpoints/step-00000001/manifest.json",
                "{\n  \"format\": \"gpipe checkpoint 1\"",
            ),
        ] {
            fs::write(path.join(name), mark).unwrap();
            NewRun::at(path, true).unwrap();
            fs::write(path.join(name), "{}").unwrap();
            NewRun::at(path, true).unwrap_err();
        }
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
