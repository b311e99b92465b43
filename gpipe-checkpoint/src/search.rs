//! Finding the newest checkpoint of a run that is whole.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::checkpoint::{Checkpoint, verify};
use super::error::{Error, Result};
use super::fault::Skipped;
use super::fs::{Disk, Fs, retry};
use super::names;
use super::read::read;

/// What was found in a run's folder.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Search {
    /// The newest checkpoint that is whole.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that are not whole, newest first.
    pub skipped: Vec<Skipped>,
    /// A newer step that the pointer `latest` names although nothing of it is there.
    pub missing: Option<u64>,
    /// One that is not damaged and cannot be used: the search ended there.
    pub(crate) refused: Option<Skipped>,
}

impl Search {
    /// What is odd, a line each: newer checkpoints that are not whole, or are missing.
    pub fn warnings(&self) -> Vec<String> {
        let skipped = self.skipped.iter().map(Skipped::to_string);
        let missing = self
            .missing
            .map(|step| format!("{}, the latest, is missing", names::of_step(step)));
        skipped.chain(missing).collect()
    }
}

/// Searches a run's folder. Every byte of the checkpoint that is found was compared with its digest, and
/// newer ones that are damaged are passed over. `max_bytes` (the machine's memory) is the most that one
/// may have.
///
/// # Errors
/// [`Error::File`] if the folder of checkpoints cannot be read, [`Error::Refused`] for a newer checkpoint
/// that is not damaged and cannot be used.
pub fn newest(run: &Path, max_bytes: u64) -> Result<Search> {
    let home = run.join(names::FOLDER);
    let found = newest_on(&Disk, &home, max_bytes);
    let mut found = found.map_err(gpipe_files::Error::read(&home, "make it readable"))?;
    match found.refused.take() {
        None => Ok(found),
        Some(Skipped { step, fault }) => Err(Error::Refused {
            folder: home.join(names::of_step(step)),
            fault,
        }),
    }
}

/// Searches of a folder in which a run saves and deletes meanwhile.
const SEARCHES: usize = 10;

/// [`newest`] on any file system, in the folder of checkpoints.
pub(crate) fn newest_on<F: Fs>(fs: &F, home: &Path, max_bytes: u64) -> io::Result<Search> {
    let is_there = |step: u64| {
        let found = retry(|| fs.kind(&home.join(names::of_step(step))));
        !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let mut search = Search::default();
    for _ in 0..SEARCHES {
        search = search_once(fs, home, max_bytes)?;
        // A run that goes on deletes a checkpoint only after it has saved a newer one.
        let listed = search.skipped.len();
        search.skipped.retain(|skipped| is_there(skipped.step));
        if search.checkpoint.is_some() || search.skipped.len() == listed {
            break;
        }
    }
    // Or it has saved one since the folder was listed.
    search.missing = search.missing.filter(|&step| !is_there(step));
    Ok(search)
}

fn search_once<F: Fs>(fs: &F, home: &Path, max_bytes: u64) -> io::Result<Search> {
    let mut search = Search::default();
    for step in steps(fs, home)? {
        match verify(fs, &home.join(names::of_step(step)), Some(step), max_bytes) {
            Ok(whole) => {
                search.checkpoint = Some(whole);
                break;
            }
            Err(fault) if fault.is_damage() => search.skipped.push(Skipped { step, fault }),
            Err(fault) => {
                search.refused = Some(Skipped { step, fault });
                break;
            }
        }
    }
    let newer = |step: &u64| match &search.checkpoint {
        Some(found) => {
            *step > found.step() && search.skipped.iter().all(|skipped| skipped.step != *step)
        }
        None => false,
    };
    search.missing = pointed(fs, home, names::LATEST).filter(newer);
    Ok(search)
}

/// The steps whose checkpoints are in a folder, newest first.
pub(crate) fn steps<F: Fs>(fs: &F, home: &Path) -> io::Result<Vec<u64>> {
    let names = retry(|| fs.list(home))?;
    let mut steps: Vec<u64> = names
        .iter()
        .filter_map(|name| names::step_of(name.to_str()?))
        .collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

/// The step that a pointer names, if it names one.
pub(crate) fn pointed<F: Fs>(fs: &F, home: &Path, pointer: &str) -> Option<u64> {
    const LONGEST: u64 = 64;
    let bytes = read(fs, home, pointer, LONGEST).ok()?;
    names::step_of(std::str::from_utf8(&bytes).ok()?.trim_end())
}

/// The run below the folder `runs` whose checkpoints changed last, if any has some.
pub fn last_run(runs: &Path) -> Option<PathBuf> {
    let saved = runs_in(runs).filter(|run| has_saved(run));
    let saved = saved.filter_map(|run| Some((modified(&run.join(names::FOLDER))?, run)));
    saved.max().map(|(_, run)| run)
}

/// The run below the folder `runs` that began last, if that is after `run` began or was last resumed, and it has no
/// checkpoint.
pub fn unsaved_since(runs: &Path, run: &Path) -> Option<PathBuf> {
    // Written by each process that goes on with a run.
    let began = |run: &Path| modified(&run.join(names::CONFIG));
    let since = began(run)?;
    let unsaved = runs_in(runs).filter(|run| !has_saved(run));
    let later = unsaved.filter_map(|run| Some((began(&run)?, run)));
    let last = later.filter(|(time, _)| *time > since).max();
    last.map(|(_, run)| run)
}

fn runs_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Whether there are checkpoints in the folder of a run, whole or not.
fn has_saved(run: &Path) -> bool {
    steps(&Disk, &run.join(names::FOLDER)).is_ok_and(|steps| !steps.is_empty())
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}
