//! From a folder that a user names to the checkpoint that a run goes on from.

use std::path::{Path, PathBuf};

use super::checkpoint::{Checkpoint, verify};
use super::error::{Error, Result};
use super::fs::Disk;
use super::lock::Lock;
use super::names;
use super::run_state::RunState;
use super::search::{Search, newest, steps};
use super::write::set_aside;

/// What a folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A run's folder, or the folder of its checkpoints.
    Run(PathBuf),
    /// A checkpoint's folder.
    Checkpoint {
        /// Its absolute path.
        folder: PathBuf,
        /// Its step, by its name.
        step: u64,
    },
}

/// What a folder is; nothing in it is read.
///
/// # Errors
/// [`Error::NotARun`] if it is no folder, or neither of both.
pub fn locate(folder: &Path) -> Result<Location> {
    let fault = |what: &dyn std::fmt::Display| Error::NotARun {
        folder: folder.to_owned(),
        what: what.to_string(),
    };
    let found = std::fs::metadata(folder).map_err(|error| fault(&error))?;
    if !found.is_dir() {
        return Err(fault(&"is no folder"));
    }
    // `.` and `..` have no name of their own.
    let absolute = std::fs::canonicalize(folder).map_err(|error| fault(&error))?;
    let name = absolute.file_name().unwrap_or_default().to_string_lossy();
    if folder.join(names::FOLDER).is_dir() {
        Ok(Location::Run(folder.to_owned()))
    } else if let Some(step) = names::step_of(&name) {
        let folder = absolute;
        Ok(Location::Checkpoint { folder, step })
    } else if name == names::FOLDER {
        let run = absolute.parent().unwrap_or(folder);
        Ok(Location::Run(run.to_owned()))
    } else {
        Err(fault(&"it holds no checkpoints"))
    }
}

/// The newest checkpoint of a run that is whole, or the one that was named, and a warning for each
/// newer one that is not whole. `max_bytes`: as for [`newest`].
///
/// # Errors
/// [`Error::NotARun`], [`Error::NoCheckpoint`], [`Error::NotWhole`] or [`Error::File`].
pub fn find(folder: &Path, max_bytes: u64) -> Result<(Checkpoint, Vec<String>)> {
    let (checkpoint, search) = open(locate(folder)?, max_bytes)?;
    Ok((checkpoint, search.warnings()))
}

/// A checkpoint that is whole, and how it was found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumed {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Where its run was.
    pub state: RunState,
    /// Newer ones that are not whole or missing: a line each.
    pub warnings: Vec<String>,
    /// The run's folder, if the run goes on in it.
    pub run: Option<HeldRun>,
}

/// The folder of a run that goes on, which no other process writes.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeldRun {
    /// Its path.
    pub path: PathBuf,
    /// Held until it is dropped.
    pub lock: Lock,
    /// Steps of checkpoints that stand in the way of new ones.
    damaged: Vec<u64>,
}

impl HeldRun {
    /// Renames checkpoints that are not whole and stand in the way of new ones; a line for each says
    /// what it is called now.
    ///
    /// # Errors
    /// [`Error::Write`] for the first that cannot be renamed.
    pub fn set_damaged_aside(&self) -> Result<Vec<String>> {
        let home = self.path.join(names::FOLDER);
        let aside = self.damaged.iter().map(|&step| {
            let name = set_aside(&mut Disk, &home, step)?;
            Ok(format!(
                "{} is now called {name}: delete it if you do not need it",
                names::of_step(step)
            ))
        });
        aside.collect()
    }
}

/// [`find`], for a run that goes on. `in_place`: in its own folder, which is locked first; from a
/// checkpoint that was named it can only if that is the newest. A checkpoint that lies outside of a
/// run's folder goes on elsewhere.
///
/// # Errors
/// Those of [`find`] and of [`Lock::take`], [`Error::NotNewest`], and [`Error::Unusable`] if the
/// checkpoint's `state.json` cannot be used.
pub fn resume(folder: &Path, in_place: bool, max_bytes: u64) -> Result<Resumed> {
    let location = locate(folder)?;
    let run = match &location {
        Location::Run(run) => Some(run.as_path()),
        Location::Checkpoint { folder, .. } => folder
            .parent()
            .filter(|home| home.ends_with(names::FOLDER))
            .and_then(Path::parent),
    };
    let run = match run.filter(|_| in_place) {
        Some(run) => Some((run.to_owned(), Lock::take(run)?)),
        None => None,
    };
    if let (Some((run, _)), Location::Checkpoint { folder, step }) = (&run, &location) {
        let steps = steps(&Disk, &run.join(names::FOLDER)).unwrap_or_default();
        if let Some(&newest) = steps.first().filter(|newest| *newest > step) {
            let folder = folder.clone();
            return Err(Error::NotNewest { folder, newest });
        }
    }
    let (checkpoint, search) = open(location, max_bytes)?;
    let damaged = search.skipped.iter().map(|skipped| skipped.step).collect();
    Ok(Resumed {
        state: checkpoint.state()?,
        checkpoint,
        warnings: search.warnings(),
        run: run.map(|(path, lock)| HeldRun {
            path,
            lock,
            damaged,
        }),
    })
}

/// The checkpoint at a location, and what else was found there.
fn open(location: Location, max_bytes: u64) -> Result<(Checkpoint, Search)> {
    match location {
        Location::Run(run) => {
            let mut search = newest(&run, max_bytes)?;
            match search.checkpoint.take() {
                Some(checkpoint) => Ok((checkpoint, search)),
                None => Err(Error::NoCheckpoint {
                    folder: run.join(names::FOLDER),
                    skipped: search.skipped,
                }),
            }
        }
        Location::Checkpoint { folder, step } => match verify(&Disk, &folder, step, max_bytes) {
            Ok(checkpoint) => Ok((checkpoint, Search::default())),
            Err(fault) => Err(Error::NotWhole { folder, fault }),
        },
    }
}
