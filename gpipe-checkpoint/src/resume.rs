//! From a folder that a user names to the checkpoint that a run goes on from.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::checkpoint::{Checkpoint, verify};
use super::error::{Error, Result};
use super::fault::Skipped;
use super::fs::Disk;
use super::identity::Identity;
use super::lock::Lock;
use super::names;
use super::run_state::RunState;
use super::search::{Search, newest, steps};

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
        /// Its step, by its name; `None` for one that was given another.
        step: Option<u64>,
    },
}

/// What a folder is; no file in it is read.
///
/// # Errors
/// [`Error::NotARun`] if it is no folder, or neither of both; [`Error::NoCheckpoint`] for a run that has saved none.
pub fn locate(folder: &Path) -> Result<Location> {
    let fault = |what: &dyn std::fmt::Display| Error::NotARun {
        folder: folder.to_owned(),
        what: what.to_string(),
    };
    let found = std::fs::metadata(folder).map_err(|error| fault(&error))?;
    if !found.is_dir() {
        return Err(fault(&"is no folder"));
    }
    let absolute = absolute(folder).map_err(|error| fault(&error))?;
    let name = absolute.file_name().unwrap_or_default().to_string_lossy();
    let (step, manifest) = (names::step_of(&name), folder.join(names::MANIFEST));
    let is_run = match std::fs::metadata(folder.join(names::FOLDER)) {
        Ok(found) => found.is_dir(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(fault(&error)),
    };
    if is_run {
        Ok(Location::Run(folder.to_owned()))
    } else if step.is_some() || manifest.symlink_metadata().is_ok() {
        let folder = absolute;
        Ok(Location::Checkpoint { folder, step })
    } else if name == names::FOLDER {
        let run = absolute.parent().unwrap_or(folder);
        Ok(Location::Run(run.to_owned()))
    } else if folder.join(names::RUN).is_file() {
        Err(Error::NoCheckpoint {
            folder: folder.to_owned(),
            skipped: Vec::new(),
        })
    } else {
        Err(fault(&"it holds no checkpoints"))
    }
}

/// The absolute path of a folder, without links and `..`. A run whose folder of checkpoints is a link, as to a larger disk,
/// stays the run that was named.
fn absolute(folder: &Path) -> io::Result<PathBuf> {
    let given = std::path::absolute(folder)?;
    let name = given.file_name().and_then(OsStr::to_str);
    let is_step = name.and_then(names::step_of).is_some() && !given.is_symlink();
    let home = given
        .ancestors()
        .nth(usize::from(is_step))
        .unwrap_or(&given);
    match home.parent().filter(|_| home.ends_with(names::FOLDER)) {
        Some(run) => {
            let below = given.strip_prefix(run).unwrap_or(&given);
            Ok(run.canonicalize()?.join(below))
        }
        None => folder.canonicalize(),
    }
}

/// The newest checkpoint of a run that is whole, or the one that was named, and a warning for each
/// newer one that is not whole. `max_bytes`: as for [`newest`].
///
/// # Errors
/// [`Error::NotARun`], [`Error::NoCheckpoint`], [`Error::NotWhole`], [`Error::Refused`],
/// [`Error::OtherRun`] or [`Error::File`].
pub fn find(folder: &Path, max_bytes: u64) -> Result<(Checkpoint, Vec<String>)> {
    let location = locate(folder)?;
    let (checkpoint, search) = open(&location, max_bytes)?;
    if let Location::Run(run) = &location {
        identity_in(run, &checkpoint)?;
    }
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
    /// The run that it belongs to; `None` if it was saved by a version that did not record that.
    pub identity: Option<Identity>,
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
}

/// [`find`], for a run that goes on. `in_place`: in its own folder, which is locked first; from a
/// checkpoint that was named it can only if that is the newest. A checkpoint that lies outside of a
/// run's folder, or has another name there, goes on elsewhere. Newer ones that are damaged stay as they
/// are until the run saves their steps again.
///
/// # Errors
/// Those of [`find`] and of [`Lock::take`], [`Error::NotNewest`], and [`Error::Unusable`] if the
/// checkpoint's `state.json` cannot be used.
pub fn resume(folder: &Path, in_place: bool, max_bytes: u64) -> Result<Resumed> {
    let location = locate(folder)?;
    let run = match &location {
        Location::Run(run) => Some(run.as_path()),
        Location::Checkpoint { step: None, .. } => None,
        Location::Checkpoint { folder, .. } => folder
            .parent()
            .filter(|home| home.ends_with(names::FOLDER))
            .and_then(Path::parent),
    };
    let held = match run.filter(|_| in_place) {
        Some(run) => Some((run.to_owned(), Lock::take(run)?)),
        None => None,
    };
    if let (Some((run, _)), Location::Checkpoint { folder, step }) = (&held, &location) {
        let steps = steps(&Disk, &run.join(names::FOLDER)).unwrap_or_default();
        if let Some(&newest) = steps.first().filter(|newest| Some(**newest) > *step) {
            let folder = folder.clone();
            return Err(Error::NotNewest { folder, newest });
        }
    }
    let (checkpoint, search) = open(&location, max_bytes)?;
    let identity = match (run, &location) {
        // One that is named may be any run's, unless it goes on in this one.
        (Some(run), Location::Run(_)) => identity_in(run, &checkpoint)?,
        (Some(run), _) if held.is_some() => identity_in(run, &checkpoint)?,
        _ => checkpoint.identity()?,
    };
    let mut warnings = search.warnings();
    if held.is_some() {
        for (warning, Skipped { step, .. }) in warnings.iter_mut().zip(&search.skipped) {
            *warning += &format!("; it stays until the run saves step {step} again");
        }
    }
    Ok(Resumed {
        state: checkpoint.state()?,
        checkpoint,
        identity,
        warnings,
        run: held.map(|(path, lock)| HeldRun { path, lock }),
    })
}

/// The identity of the run in a folder, to which the checkpoint must belong. Without a `run.json`, of
/// which an earlier version knows nothing, it is that of the checkpoint, if all others there have the same.
pub(crate) fn identity_in(run: &Path, checkpoint: &Checkpoint) -> Result<Option<Identity>> {
    let (of_run, own) = (Identity::of_run(run)?, checkpoint.identity()?);
    let Some(own) = own else {
        return Ok(of_run);
    };
    let is_own = match &of_run {
        Some(run) => run.id == own.id,
        None => {
            let home = run.join(names::FOLDER);
            let steps = steps(&Disk, &home).unwrap_or_default();
            // Newer ones are damaged: they were passed over.
            let mut older = steps.into_iter().filter(|&step| step < checkpoint.step());
            older.all(|step| {
                let other = Identity::of_run(&home.join(names::of_step(step)));
                matches!(other, Ok(Some(other)) if other.id == own.id)
            })
        }
    };
    match is_own {
        true => Ok(Some(own)),
        false => Err(Error::OtherRun {
            folder: checkpoint.folder().to_owned(),
            id: own.id,
        }),
    }
}

/// The checkpoint at a location, and what else was found there.
fn open(location: &Location, max_bytes: u64) -> Result<(Checkpoint, Search)> {
    match location {
        Location::Run(run) => {
            let mut search = newest(run, max_bytes)?;
            match search.checkpoint.take() {
                Some(checkpoint) => Ok((checkpoint, search)),
                None => Err(Error::NoCheckpoint {
                    folder: run.join(names::FOLDER),
                    skipped: search.skipped,
                }),
            }
        }
        Location::Checkpoint { folder, step } => match verify(&Disk, folder, *step, max_bytes) {
            Ok(checkpoint) => Ok((checkpoint, Search::default())),
            Err(fault) => {
                let folder = folder.clone();
                Err(match fault.is_damage() {
                    true => Error::NotWhole { folder, fault },
                    false => Error::Refused { folder, fault },
                })
            }
        },
    }
}
