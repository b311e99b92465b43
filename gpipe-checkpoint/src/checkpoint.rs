//! A checkpoint that is whole. Its folder is not trusted: names, lengths and digests are checked
//! before anything is believed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{Error, Result};
use super::fault::Fault;
use super::fs::{Disk, Fs, Kind};
use super::manifest::{Listed, Manifest, hexadecimal};
use super::names;
use super::read::{kind, measure, names_below, read};
use super::run_state::RunState;

/// A manifest of a few files is far smaller.
const LARGEST_MANIFEST: u64 = 1 << 20;

/// A checkpoint, every byte of which was compared with its digest.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    manifest: Manifest,
}

impl Checkpoint {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The step after which it was saved.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Its files with their lengths and digests.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where its run was.
    ///
    /// # Errors
    /// [`Error::Unusable`] if `state.json` is not one that this version reads.
    pub fn state(&self) -> Result<RunState> {
        let unusable = |fault: &dyn Display| self.unusable(&format!("{}: {fault}", names::STATE));
        let bytes = self.read(names::STATE)?;
        let state: RunState = serde_json::from_slice(&bytes).map_err(|error| unusable(&error))?;
        match state.step == self.step() {
            true => Ok(state),
            false => {
                let fault = format!("{} is of step {}", names::STATE, state.step);
                Err(self.unusable(&fault))
            }
        }
    }

    /// The bytes of a file, by its name in the manifest (`model/config.json`); once more they are
    /// compared with their digest.
    ///
    /// # Errors
    /// [`Error::Unusable`] if the file is not what it was when the checkpoint was found.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.read_on(&Disk, name)
            .map_err(|fault| self.unusable(&fault))
    }

    /// [`read`](Self::read) on any file system.
    pub(crate) fn read_on<F: Fs>(&self, fs: &F, name: &str) -> std::result::Result<Vec<u8>, Fault> {
        let listed = self.manifest.files.iter().find(|file| file.name == name);
        let Listed { bytes, sha256, .. } = listed.ok_or_else(|| Fault::Missing(name.to_owned()))?;
        let found = read(fs, &self.folder, name, *bytes)?;
        match hexadecimal(&Sha256::digest(&found)) == *sha256 {
            true => Ok(found),
            false => Err(Fault::Changed(name.to_owned())),
        }
    }

    /// The error for a checkpoint that cannot be used.
    pub(crate) fn unusable(&self, what: &dyn Display) -> Error {
        Error::Unusable {
            folder: self.folder.clone(),
            what: what.to_string(),
        }
    }
}

/// Checks that the folder is the checkpoint of a step and whole; `max_bytes` is the most that its
/// files may have together.
///
/// # Errors
/// The first fault, by name of the file.
pub fn verify<F: Fs>(
    fs: &F,
    folder: &Path,
    step: u64,
    max_bytes: u64,
) -> std::result::Result<Checkpoint, Fault> {
    if kind(fs, folder, "the folder")? != Kind::Folder {
        return Err(Fault::NotAFolder);
    }
    let manifest = Manifest::parse(&read(fs, folder, names::MANIFEST, LARGEST_MANIFEST)?)?;
    if manifest.step != step {
        return Err(Fault::Step(manifest.step));
    }
    let needed = manifest.bytes();
    if needed > max_bytes {
        let there = max_bytes;
        return Err(Fault::TooLarge { needed, there });
    }
    let mut strange = BTreeSet::new();
    names_below(fs, folder, "", &mut strange)?;
    strange.remove(names::MANIFEST);
    for file in &manifest.files {
        if !strange.remove(&file.name) {
            return Err(Fault::Missing(file.name.clone()));
        }
        let (length, digest) = measure(fs, folder, &file.name, file.bytes)?;
        if length != file.bytes {
            let (name, expected, got) = (file.name.clone(), file.bytes, length);
            return Err(Fault::Length {
                name,
                expected,
                got,
            });
        }
        if digest != file.sha256 {
            return Err(Fault::Changed(file.name.clone()));
        }
    }
    match strange.pop_first() {
        Some(name) => Err(Fault::Extra(name)),
        None => Ok(Checkpoint {
            folder: folder.to_owned(),
            manifest,
        }),
    }
}
