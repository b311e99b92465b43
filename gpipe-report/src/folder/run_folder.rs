//! The folder of a run that goes on.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, fs};

use gpipe_files::{Error as FileError, Links};

use super::earlier::remove_earlier;
use super::lines::Lines;
use super::names::{CONFIG, EVENTS, LOG, TIMELINE, TRACE, until};
use crate::error::Result;
use crate::event::Event;
use crate::tensorboard::TensorBoard;

/// The right to write a folder, given back when it is dropped.
type Lock = Box<dyn Send + Sync>;

/// The folder of a run that has begun, and the right to write it.
pub struct RunFolder {
    path: PathBuf,
    /// Where the files are until the run takes the place of an earlier one.
    aside: Option<PathBuf>,
    log: Lines,
    events: Lines,
    curves: TensorBoard,
    _lock: Lock,
}

impl RunFolder {
    /// Writes the configuration and opens new files, in the folder `aside` if there is one; none may be
    /// there yet.
    pub(crate) fn create(
        path: PathBuf,
        aside: Option<PathBuf>,
        lock: Lock,
        config: &str,
        now: SystemTime,
    ) -> Result<Self> {
        let at = aside.as_ref().unwrap_or(&path);
        let open = || {
            let file = at.join(CONFIG);
            gpipe_files::create_new(&file)?
                .write_all(config.as_bytes())
                .map_err(FileError::write(&file))?;
            Ok((
                Lines::create(at.join(LOG))?,
                Lines::create(at.join(EVENTS))?,
                TensorBoard::create(at, None, now)?,
            ))
        };
        match open() {
            Ok((log, events, curves)) => Ok(Self {
                path,
                aside,
                log,
                events,
                curves,
                _lock: lock,
            }),
            Err(error) => {
                // This process has made it, and the same command is tried again.
                remove(at);
                Err(error)
            }
        }
    }

    /// Opens the folder of a run that is resumed in it: `config.toml` is replaced, the log and the
    /// events are appended to; if one of those is read-only, the lines for it are errors. `first` is the step that comes next; `lock` as for
    /// [`MadeRun::begin`](crate::MadeRun::begin).
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if a file cannot be written.
    pub fn reopen(
        path: &Path,
        lock: impl Send + Sync + 'static,
        config: &str,
        first: u64,
        now: SystemTime,
    ) -> Result<Self> {
        // Written when the run ends; the error about what stands in their way comes now.
        for name in [TIMELINE, TRACE] {
            gpipe_files::check_writable(&path.join(name))?;
        }
        gpipe_files::replace(&path.join(CONFIG), config.as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            aside: None,
            log: Lines::reopen(path.join(LOG))?,
            events: Lines::reopen(path.join(EVENTS))?,
            curves: TensorBoard::create(path, Some(first), now)?,
            _lock: Box::new(lock),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an earlier run in the folder is still as it was.
    pub fn replaces(&self) -> bool {
        self.aside.is_some()
    }

    /// Replaces the earlier run: the files that this crate wrote are removed, all others are left alone,
    /// and checkpoints to the crate that wrote them. If the folder is dropped before, the earlier run
    /// stays as it was. Does nothing if there was none.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if a file cannot be removed or moved.
    pub fn take_place(&mut self) -> Result<()> {
        let Self { path, aside, .. } = self;
        let Some(at) = aside else {
            return Ok(());
        };
        let moved = remove_earlier(path).and_then(|()| {
            for entry in fs::read_dir(&*at)? {
                let entry = entry?;
                fs::rename(entry.path(), path.join(entry.file_name()))?;
            }
            fs::remove_dir(at)
        });
        moved.map_err(FileError::write(path))?;
        self.log.moved_to(path);
        self.events.moved_to(path);
        self.curves.moved_to(path);
        self.aside = None;
        Ok(())
    }

    /// Where the files are now.
    fn at(&self) -> &Path {
        self.aside.as_ref().unwrap_or(&self.path)
    }

    /// Appends text for people to `log.txt`.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if it cannot be written.
    pub fn log(&mut self, text: &str) -> Result<()> {
        self.log.add(text.trim_end())
    }

    /// Appends an event to `events.jsonl`, and its values to TensorBoard's file.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if one of them cannot be written; the other is.
    pub fn event(&mut self, event: &Event, now: SystemTime) -> Result<()> {
        let added = self.events.add(&event.to_json_at(now)?);
        let drawn = match event.scalars() {
            Some((step, values)) => self.curves.add(step, &values, now),
            None => Ok(()),
        };
        added.and(drawn)
    }

    /// Writes `timeline.json`, in the place of the earlier one only when it is whole.
    pub(crate) fn write_timeline(&self, json: &[u8]) -> Result<()> {
        Ok(gpipe_files::replace(&self.at().join(TIMELINE), json)?)
    }

    /// `timeline.json` of an earlier process, unless it is larger than any that is written.
    pub(crate) fn earlier_timeline(&self) -> Option<Vec<u8>> {
        const LARGEST: u64 = 1 << 30;
        let path = self.at().join(TIMELINE);
        gpipe_files::read_capped(&path, LARGEST, Links::Refused, "").ok()
    }

    /// Renames the timelines of the steps up to `step`, which the run does not continue, and gives the
    /// new name of the first.
    pub(crate) fn set_timelines_aside(&self, step: u64) -> Result<String> {
        for name in [TIMELINE, TRACE] {
            let path = self.at().join(name);
            match fs::rename(&path, self.at().join(until(name, step))) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(FileError::write(&path)(error).into());
                }
                _ => {}
            }
        }
        Ok(until(TIMELINE, step))
    }

    /// Writes `trace.json`.
    pub(crate) fn write_trace(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        Ok(gpipe_files::replace_with(&self.at().join(TRACE), write)?)
    }
}

/// The folder alone.
impl fmt::Debug for RunFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            remove(aside);
        }
    }
}

/// Removes the folder of a run that did not begin. If it cannot, the error that kept the run from beginning counts.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As where a copy of a run may be read alone. Nothing is read-only to root.
    #[cfg(unix)]
    #[test]
    fn a_run_is_resumed_without_the_files_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let now = SystemTime::UNIX_EPOCH;
        drop(RunFolder::create(path.into(), None, Box::new(()), "", now).unwrap());
        for name in [LOG, EVENTS] {
            let mut permissions = fs::metadata(path.join(name)).unwrap().permissions();
            permissions.set_readonly(true);
            fs::set_permissions(path.join(name), permissions).unwrap();
        }
        if gpipe_files::append(&path.join(LOG)).is_ok() {
            return;
        }
        let mut run = RunFolder::reopen(path, (), "", 2, now).unwrap();
        let error = run.log("text").unwrap_err().to_string();
        assert!(error.contains(LOG) && error.lines().count() == 1, "{error}");
        let event = Event::eval(Some(1), 0.0, 1.0, 2);
        let error = run.event(&event, now).unwrap_err().to_string();
        assert!(error.contains(EVENTS), "{error}");
        assert_eq!(fs::read(path.join(LOG)).unwrap(), b"");
    }

    #[test]
    fn a_run_that_is_resumed_appends_to_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let now = SystemTime::UNIX_EPOCH;
        let run = RunFolder::create(path.into(), None, Box::new(()), "x = 1\n", now);
        let mut run = run.unwrap();
        let event = Event::eval(Some(1), 0.0, 1.0, 2);
        run.log("before \n").unwrap();
        run.event(&event, now).unwrap();
        drop(run);
        let mut run = RunFolder::reopen(path, (), "x = 2\n", 2, now).unwrap();
        run.log("after").unwrap();
        run.event(&event, now).unwrap();
        assert_eq!(run.path(), path);
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(read(LOG), "before\nafter\n");
        assert_eq!(read(CONFIG), "x = 2\n");
        let line = event.to_json_at(now).unwrap();
        assert_eq!(read(EVENTS), format!("{line}\n{line}\n"));
    }
}
