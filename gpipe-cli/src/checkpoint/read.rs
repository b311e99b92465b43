//! Finding the newest checkpoint that is whole. A folder of checkpoints is not trusted: names,
//! lengths and digests are checked before anything is believed.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::fs::{Fs, Kind};
use super::manifest::{Listed, Manifest, hexadecimal};
use super::names;

/// What keeps a checkpoint from being used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A listed file is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A file that is not listed is there: something may read it that believes it belongs to the rest.
    #[error("{0} is not in the manifest: remove it")]
    Extra(String),
    /// A link, a pipe, a device, or a folder where a file should be.
    #[error("{0} is no regular file")]
    NotAFile(String),
    /// The folder of the checkpoint is none.
    #[error("is no folder")]
    NotAFolder,
    /// A file has been cut off or has grown.
    #[error("{name} has {got} bytes, not {expected}")]
    Length {
        /// The file.
        name: String,
        /// By the manifest.
        expected: u64,
        /// By the file system.
        got: u64,
    },
    /// A file holds something else than what was written.
    #[error("{0} does not have its digest")]
    Changed(String),
    /// The manifest is damaged, or was made by something else.
    #[error("manifest.json {0}")]
    Manifest(String),
    /// The manifest is that of another checkpoint.
    #[error("manifest.json is of step {0}")]
    Step(u64),
    /// The checkpoint holds more than this machine's memory.
    #[error("its {needed} bytes are more than the {there} that this machine has")]
    TooLarge {
        /// Of all its files.
        needed: u64,
        /// The machine's memory.
        there: u64,
    },
    /// A file cannot be read.
    #[error("{name}: {source}")]
    Unreadable {
        /// The file, or the folder.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// A manifest of a few files is far smaller.
const LARGEST_MANIFEST: u64 = 1 << 20;

/// A checkpoint, every byte of which is what was written.
#[derive(Debug)]
pub struct Whole {
    /// Where it is.
    pub folder: PathBuf,
    /// What it holds.
    pub manifest: Manifest,
}

/// Checks that the folder is the checkpoint of a step and whole; `memory` is the most that its files
/// may need.
///
/// # Errors
/// The first fault, by name of the file.
pub fn verify<F: Fs>(fs: &F, folder: &Path, step: u64, memory: u64) -> Result<Whole, Fault> {
    if kind(fs, folder, "the folder")? != Kind::Folder {
        return Err(Fault::NotAFolder);
    }
    let manifest = read(fs, folder, names::MANIFEST, LARGEST_MANIFEST)?;
    let manifest = Manifest::parse(&manifest).map_err(Fault::Manifest)?;
    if manifest.step != step {
        return Err(Fault::Step(manifest.step));
    }
    let needed = manifest.bytes();
    if needed > memory {
        let there = memory;
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
        None => Ok(Whole {
            folder: folder.to_owned(),
            manifest,
        }),
    }
}

impl Whole {
    /// The bytes of a file, which are once more compared with their digest.
    ///
    /// # Errors
    /// If the file is not what it was when the checkpoint was verified.
    pub fn read<F: Fs>(&self, fs: &F, name: &str) -> Result<Vec<u8>, Fault> {
        let listed = self.manifest.files.iter().find(|file| file.name == name);
        let Listed { bytes, sha256, .. } = listed.ok_or_else(|| Fault::Missing(name.to_owned()))?;
        let read = read(fs, &self.folder, name, *bytes)?;
        match hexadecimal(&Sha256::digest(&read)) == *sha256 {
            true => Ok(read),
            false => Err(Fault::Changed(name.to_owned())),
        }
    }
}

/// A checkpoint that was passed over, and why.
#[derive(Debug)]
pub struct Skipped {
    /// Its step.
    pub step: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// The newest checkpoint that is whole, and the newer ones that are not, newest first.
///
/// # Errors
/// If the folder of checkpoints cannot be read.
pub fn newest<F: Fs>(
    fs: &F,
    home: &Path,
    memory: u64,
) -> io::Result<(Option<Whole>, Vec<Skipped>)> {
    let mut steps: Vec<u64> = fs
        .list(home)?
        .iter()
        .filter_map(|name| names::step_of(name))
        .collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    let mut skipped = Vec::new();
    for step in steps {
        match verify(fs, &home.join(names::of_step(step)), step, memory) {
            Ok(whole) => return Ok((Some(whole), skipped)),
            Err(fault) => skipped.push(Skipped { step, fault }),
        }
    }
    Ok((None, skipped))
}

/// The step that a pointer names, if it names one.
pub fn pointed<F: Fs>(fs: &F, home: &Path, pointer: &str) -> Option<u64> {
    const LONGEST: u64 = 64;
    let bytes = read(fs, home, pointer, LONGEST).ok()?;
    names::step_of(std::str::from_utf8(&bytes).ok()?.trim_end())
}

fn unreadable(name: &str) -> impl FnOnce(io::Error) -> Fault {
    let name = name.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => Fault::Missing(name),
        _ => Fault::Unreadable { name, source },
    }
}

fn kind<F: Fs>(fs: &F, path: &Path, name: &str) -> Result<Kind, Fault> {
    fs.kind(path).map_err(unreadable(name))
}

/// The files below a folder, by their names in the manifest. Anything that is neither file nor folder
/// is a fault, and so is a folder that lies too deep to hold a file of a checkpoint.
fn names_below<F: Fs>(
    fs: &F,
    folder: &Path,
    prefix: &str,
    found: &mut BTreeSet<String>,
) -> Result<(), Fault> {
    let here = if prefix.is_empty() {
        "the folder"
    } else {
        prefix
    };
    for name in fs.list(folder).map_err(unreadable(here))? {
        let (path, name) = (folder.join(&name), format!("{prefix}{name}"));
        match kind(fs, &path, &name)? {
            Kind::File(_) => drop(found.insert(name)),
            Kind::Folder if names::components(&format!("{name}/x")).is_some() => {
                names_below(fs, &path, &format!("{name}/"), found)?;
            }
            Kind::Folder => return Err(Fault::Extra(name)),
            Kind::Other => return Err(Fault::NotAFile(name)),
        }
    }
    Ok(())
}

/// The file below a folder, opened, and its length.
fn open<'a, F: Fs>(
    fs: &'a F,
    folder: &Path,
    name: &str,
) -> Result<(Box<dyn Read + 'a>, u64), Fault> {
    let path = folder.join(name);
    match kind(fs, &path, name)? {
        Kind::File(length) => Ok((fs.open(&path).map_err(unreadable(name))?, length)),
        _ => Err(Fault::NotAFile(name.to_owned())),
    }
}

/// The bytes of a file that has at most so many. No more is ever allocated than the file has.
fn read<F: Fs>(fs: &F, folder: &Path, name: &str, most: u64) -> Result<Vec<u8>, Fault> {
    let (file, length) = open(fs, folder, name)?;
    let too_long = |got| Fault::Length {
        name: name.to_owned(),
        expected: most,
        got,
    };
    if length > most {
        return Err(too_long(length));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(length).map_err(|_| too_long(length))?;
    bytes
        .try_reserve_exact(room)
        .map_err(|error| unreadable(name)(io::Error::other(error)))?;
    // It may have grown since: one byte more than allowed is enough to tell.
    file.take(length + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable(name))?;
    match bytes.len() as u64 {
        got if got > length => Err(too_long(got)),
        _ => Ok(bytes),
    }
}

/// Length and digest of a file that should have so many bytes; no more are read.
fn measure<F: Fs>(fs: &F, folder: &Path, name: &str, bytes: u64) -> Result<(u64, String), Fault> {
    const PIECE: usize = 1 << 16;
    let (mut file, length) = open(fs, folder, name)?;
    if length != bytes {
        return Ok((length, String::new()));
    }
    let (mut digest, mut piece, mut got) = (Sha256::new(), vec![0; PIECE], 0_u64);
    while got <= bytes {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => {
                digest.update(&piece[..n]);
                got += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(name)(error)),
        }
    }
    Ok((got, hexadecimal(&digest.finalize())))
}
