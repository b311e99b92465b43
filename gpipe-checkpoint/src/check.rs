//! Every byte of every checkpoint of a run, compared with its digest; nothing is changed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::checkpoint::examine;
use super::error::Result;
use super::fault::Fault;
use super::fs::{Disk, Fs};
use super::identity::Identity;
use super::names;
use super::resume::{Location, find, locate};
use super::search::steps;

/// What [`check`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Check {
    /// The checkpoints, newest first.
    pub checkpoints: Vec<Checked>,
    /// The step that the run goes on from, or why it cannot.
    pub resumes: Result<u64>,
}

/// A checkpoint that was looked at.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// Its folder.
    pub folder: PathBuf,
    /// The step after which it was saved, by its manifest or else by its name.
    pub step: Option<u64>,
    /// Its files, the manifest included, and their bytes; 0 without a manifest.
    pub files: usize,
    /// Bytes of the listed files.
    pub bytes: u64,
    /// Everything that is wrong with it.
    pub faults: Vec<Fault>,
    /// The run that saved it, if it is another one than that in whose folder it lies.
    pub other_run: Option<String>,
}

impl Checked {
    /// Whether nothing is wrong with it.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.other_run.is_none()
    }
}

impl Check {
    /// Whether nothing is wrong with any checkpoint.
    pub fn is_whole(&self) -> bool {
        self.resumes.is_ok() && self.checkpoints.iter().all(Checked::is_whole)
    }
}

/// Reads every file of every checkpoint of a run, or of the checkpoint that is named, also while the run
/// goes on. `max_bytes`: as for [`newest`](crate::newest).
///
/// # Errors
/// [`Error::NotARun`](crate::Error::NotARun), or [`Error::File`](crate::Error::File) if the folder of checkpoints or `run.json` cannot be read.
pub fn check(folder: &Path, max_bytes: u64) -> Result<Check> {
    let location = locate(folder)?;
    let (folders, run) = match &location {
        Location::Checkpoint { folder, step } => (vec![(folder.clone(), *step)], None),
        Location::Run(run) => {
            let home = run.join(names::FOLDER);
            let steps = steps(&Disk, &home);
            let steps = steps.map_err(gpipe_files::Error::read(&home, "make it readable"))?;
            let folders = steps
                .into_iter()
                .map(|step| (home.join(names::of_step(step)), Some(step)));
            (folders.collect(), Identity::of_run(run)?)
        }
    };
    let checkpoints = look_at(folders, run.as_ref());
    let found = find(folder, max_bytes);
    Ok(Check {
        checkpoints,
        resumes: found.map(|(checkpoint, _)| checkpoint.step()),
    })
}

/// Looks at these checkpoints, but for those that a run that goes on has deleted meanwhile.
fn look_at(folders: Vec<(PathBuf, Option<u64>)>, run: Option<&Identity>) -> Vec<Checked> {
    let looked = folders
        .into_iter()
        .map(|(path, step)| look(path, step, run));
    let is_gone = |checked: &Checked| {
        let found = Disk.kind(&checked.folder);
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    looked.filter(|checked| !is_gone(checked)).collect()
}

fn look(folder: PathBuf, step: Option<u64>, run: Option<&Identity>) -> Checked {
    let (manifest, faults) = examine(&Disk, &folder, step, u64::MAX);
    let own = Identity::of_run(&folder).ok().flatten();
    let other = own.zip(run).filter(|(own, run)| own.id != run.id);
    Checked {
        step: manifest.as_ref().map(|manifest| manifest.step).or(step),
        files: manifest
            .as_ref()
            .map_or(0, |manifest| manifest.files.len() + 1),
        bytes: manifest.map_or(0, |manifest| manifest.bytes()),
        faults,
        other_run: other.map(|(own, _)| own.id),
        folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_deletes_meanwhile_is_left_out_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("empty")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        let folders = ["empty", "deleted", "file"];
        let folders = folders.map(|name| (path(name), Some(1)));
        let checked = look_at(folders.into(), None);
        assert!(checked.iter().all(|found| !found.is_whole()));
        let left: Vec<PathBuf> = checked.into_iter().map(|found| found.folder).collect();
        assert_eq!(left, ["empty", "file"].map(path));
    }
}
