//! The folder of a run that goes on.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpipe_files::{Error as FileError, Links};

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
    log: Lines,
    events: Lines,
    curves: TensorBoard,
    _lock: Lock,
}

impl RunFolder {
    /// Writes the configuration and opens new files; none may be there yet.
    pub(crate) fn create(path: PathBuf, lock: Lock, config: &str, now: SystemTime) -> Result<Self> {
        let file = path.join(CONFIG);
        gpipe_files::create_new(&file)?
            .write_all(config.as_bytes())
            .map_err(FileError::write(&file))?;
        Ok(Self {
            log: Lines::create(path.join(LOG))?,
            events: Lines::create(path.join(EVENTS))?,
            curves: TensorBoard::create(&path, None, now)?,
            path,
            _lock: lock,
        })
    }

    /// Opens the folder of a run that is resumed in it: `config.toml` is replaced, the log and the
    /// events are appended to. `first` is the step that comes next; `lock` as for
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
        gpipe_files::replace(&path.join(CONFIG), config.as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
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
        Ok(gpipe_files::replace(&self.path.join(TIMELINE), json)?)
    }

    /// `timeline.json` of an earlier process, unless it is larger than any that is written.
    pub(crate) fn earlier_timeline(&self) -> Option<Vec<u8>> {
        const LARGEST: u64 = 1 << 30;
        let path = self.path.join(TIMELINE);
        gpipe_files::read_capped(&path, LARGEST, Links::Followed, "").ok()
    }

    /// Renames the timelines of the steps up to `step`, which the run does not continue, and gives the
    /// new name of the first.
    pub(crate) fn set_timelines_aside(&self, step: u64) -> Result<String> {
        for name in [TIMELINE, TRACE] {
            let path = self.path.join(name);
            match fs::rename(&path, self.path.join(until(name, step))) {
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
        let path = self.path.join(TRACE);
        let file = File::create(&path).map(BufWriter::new);
        let written = file.and_then(|mut file| write(&mut file).and_then(|()| file.flush()));
        Ok(written.map_err(FileError::write(&path))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_resumed_appends_to_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let now = SystemTime::UNIX_EPOCH;
        let run = RunFolder::create(path.into(), Box::new(()), "x = 1\n", now);
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
