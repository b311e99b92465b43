//! A checkpoint that is whole. Its folder is not trusted: names, lengths and digests are checked
//! before anything is believed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};

use gpipe_files::Links;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::error::{Error, Result};
use super::fault::Fault;
use super::fs::{Disk, Fs, Kind};
use super::identity::Identity;
use super::manifest::{Listed, Manifest, clip, hexadecimal};
use super::names;
use super::read::{kind, measure, names_below, read};
use super::run_state::RunState;

/// A manifest of a few files is far smaller; one of parts by a thousand ranks has half a MiB.
const LARGEST_MANIFEST: u64 = 1 << 24;

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
        let state: RunState = self.parsed(names::STATE)?;
        match state.step == self.step() {
            true => Ok(state),
            false => {
                let fault = format!("{} is of step {}", names::STATE, state.step);
                Err(self.unusable(&fault))
            }
        }
    }

    /// The run that saved it; `None` if it was saved by a version that did not record that.
    ///
    /// # Errors
    /// [`Error::Unusable`] if `run.json` is not one that this version reads.
    pub fn identity(&self) -> Result<Option<Identity>> {
        if !self
            .manifest
            .files
            .iter()
            .any(|file| file.name == names::RUN)
        {
            return Ok(None);
        }
        self.parsed(names::RUN).map(Some)
    }

    /// What a file of JSON says, whose bytes are as they were written, by whatever version.
    fn parsed<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let parsed = serde_json::from_slice(&self.read(name)?);
        parsed.map_err(|error| {
            let fault = clip(&error.to_string());
            self.unusable(&format!(
                "{name}: {fault}: use the version of gpipe that wrote it"
            ))
        })
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

    /// A file, open, by its name in the manifest; once more its bytes were compared with their digest.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn open(&self, name: &str) -> Result<File> {
        let listed = self.manifest.files.iter().find(|file| file.name == name);
        let fault = match listed {
            Some(listed) => fault_of(&Disk, &self.folder, listed),
            None => Some(Fault::Missing(name.to_owned())),
        };
        if let Some(fault) = fault {
            return Err(self.unusable(&fault));
        }
        let opened = gpipe_files::open_options(Links::Refused)
            .read(true)
            .open(self.folder.join(name));
        opened.map_err(|error| self.unusable(&Fault::unreadable(name)(error)))
    }

    /// The error for a checkpoint that cannot be used.
    pub(crate) fn unusable(&self, what: &dyn Display) -> Error {
        Error::Unusable {
            folder: self.folder.clone(),
            what: what.to_string(),
        }
    }
}

/// Checks that the folder is a checkpoint, of this step if one is given, and whole; `max_bytes` is the
/// most that its files may have together.
///
/// # Errors
/// The first damage, or else the first fault, by name of the file.
pub fn verify<F: Fs>(
    fs: &F,
    folder: &Path,
    step: Option<u64>,
    max_bytes: u64,
) -> std::result::Result<Checkpoint, Fault> {
    let (manifest, mut faults) = examine(fs, folder, step, max_bytes);
    let worst = faults.iter().position(Fault::is_damage).unwrap_or(0);
    match manifest {
        Some(manifest) if faults.is_empty() => Ok(Checkpoint {
            folder: folder.to_owned(),
            manifest,
        }),
        _ => Err(faults.swap_remove(worst)),
    }
}

/// Everything that is wrong with a checkpoint, and its manifest, without which there is a fault.
pub fn examine<F: Fs>(
    fs: &F,
    folder: &Path,
    step: Option<u64>,
    max_bytes: u64,
) -> (Option<Manifest>, Vec<Fault>) {
    let manifest = match manifest_of(fs, folder) {
        Ok(manifest) => manifest,
        Err(fault) => return (None, vec![fault]),
    };
    if step.is_some_and(|step| step != manifest.step) {
        let fault = Fault::Step(manifest.step);
        return (Some(manifest), vec![fault]);
    }
    let mut faults = Vec::new();
    let needed = manifest.bytes();
    if needed > max_bytes {
        let there = max_bytes;
        faults.push(Fault::TooLarge { needed, there });
        return (Some(manifest), faults);
    }
    let mut strange = BTreeSet::new();
    if let Err(fault) = names_below(fs, folder, "", &mut strange) {
        faults.push(fault);
        return (Some(manifest), faults);
    }
    strange.remove(names::MANIFEST);
    for file in &manifest.files {
        match strange.remove(&file.name) {
            true => faults.extend(fault_of(fs, folder, file)),
            false => faults.push(Fault::Missing(file.name.clone())),
        }
    }
    faults.extend(strange.into_iter().map(Fault::Extra));
    (Some(manifest), faults)
}

/// The manifest in a checkpoint's folder.
pub fn manifest_of<F: Fs>(fs: &F, folder: &Path) -> std::result::Result<Manifest, Fault> {
    if kind(fs, folder, "the folder")? != Kind::Folder {
        return Err(Fault::NotAFolder);
    }
    Manifest::parse(&read(fs, folder, names::MANIFEST, LARGEST_MANIFEST)?)
}

/// What is wrong with a file, every byte of which is read.
fn fault_of<F: Fs>(fs: &F, folder: &Path, file: &Listed) -> Option<Fault> {
    let (name, expected) = (file.name.clone(), file.bytes);
    match measure(fs, folder, &name, expected) {
        Err(fault) => Some(fault),
        Ok((got, _)) if got != expected => Some(Fault::Length {
            name,
            expected,
            got,
        }),
        Ok((_, digest)) if digest != file.sha256 => Some(Fault::Changed(name)),
        Ok(_) => None,
    }
}
