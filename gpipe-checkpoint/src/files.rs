//! The files of a checkpoint, written by rank 0 alone or by all ranks that have a part of them, each file by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gpipe_tensor::safetensors::FileContents;
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::fs::{Fs, Kind, retry};
use super::manifest::{Listed, Manifest, hexadecimal};
use super::names;

/// A file of a checkpoint and the rank that writes it.
pub struct Placed {
    pub rank: usize,
    pub name: String,
    /// The name of the file that it is a part of, or its own.
    pub whole: String,
    pub contents: FileContents,
}

/// Files that a rank is to write: their names, and the names of those that they are parts of.
pub struct Order {
    pub rank: usize,
    pub files: Vec<(String, String)>,
}

/// The other ranks of a save.
pub trait Ranks {
    /// Whether each of these ranks finds a probe with this text in a folder.
    fn find(&self, ranks: &[usize], folder: &Path, text: &str) -> bool;

    /// Lets each rank write its files below a folder and sync them ([`write_part`]), does something `meanwhile`, and waits
    /// for all of them: nothing is written any more when this returns. An error says which rank it is of.
    fn write(
        &self,
        folder: &Path,
        orders: &[Order],
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Result<Vec<Listed>, String>>;
}

/// Ranks that write their own files where all of them have the folder.
pub struct Shared<'a> {
    pub files: &'a [Placed],
    pub ranks: &'a dyn Ranks,
    /// Random: no other folder has it in its name, and no other file in it.
    pub token: &'a str,
}

/// Writes the files and, last, the manifest; then syncs the folders.
pub fn write_all<F: Fs>(
    fs: &mut F,
    folder: &Path,
    step: u64,
    files: &[(String, FileContents)],
    shared: Option<&Shared>,
) -> Result<u64, Failure> {
    retry(|| fs.create_dir(folder)).map_err(Failure::to("make", folder))?;
    let shared = match shared {
        Some(shared) if is_found(fs, folder, shared)? => Some(shared),
        _ => None,
    };
    let names: Vec<&str> = match shared {
        Some(shared) => shared.files.iter().map(|file| &*file.name).collect(),
        None => files.iter().map(|(name, _)| &**name).collect(),
    };
    let mut below = folders(folder, &names);
    for folder in &below {
        retry(|| fs.create_dir(folder)).map_err(Failure::to("make", folder))?;
    }
    let listed = match shared {
        Some(shared) => write_shared(fs, folder, shared)?,
        None => {
            let files = files.iter().map(|(name, file)| (&**name, file));
            write_files(fs, folder, files)?
        }
    };
    let manifest = Manifest::new(step, listed);
    let path = folder.join(names::MANIFEST);
    let bytes = manifest
        .to_bytes()
        .map_err(|error| Failure::to("write", &path)(error.into()))?;
    let length = bytes.len() as u64;
    write_file(fs, &path, &bytes.into())?;
    below.push(folder.to_owned());
    for folder in &below {
        retry(|| fs.sync_dir(folder)).map_err(Failure::to("sync", folder))?;
    }
    Ok(manifest.bytes().saturating_add(length))
}

/// The folders below one that these files need, each after the one that it lies in.
fn folders(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let mut below = BTreeSet::new();
    for name in names {
        let ends = name.match_indices('/').map(|(end, _)| end);
        below.extend(ends.map(|end| folder.join(&name[..end])));
    }
    // By components, so a folder comes before those in it.
    below.into_iter().collect()
}

/// Whether all ranks that have files find one that is written now: the same path may be another folder there.
fn is_found<F: Fs>(fs: &mut F, folder: &Path, shared: &Shared) -> Result<bool, Failure> {
    let path = folder.join(names::PROBE);
    write_file(fs, &path, &shared.token.as_bytes().to_vec().into())?;
    let others: BTreeSet<usize> = shared.files.iter().map(|file| file.rank).collect();
    let others: Vec<usize> = others.into_iter().filter(|&rank| rank > 0).collect();
    let is_found = shared.ranks.find(&others, folder, shared.token);
    retry(|| fs.remove_file(&path)).map_err(Failure::to("delete", &path))?;
    Ok(is_found)
}

/// Writes the files of this rank while the others write theirs.
fn write_shared<F: Fs>(fs: &mut F, folder: &Path, shared: &Shared) -> Result<Vec<Listed>, Failure> {
    let mut orders: BTreeMap<usize, Vec<(String, String)>> = BTreeMap::new();
    for file in shared.files.iter().filter(|file| file.rank > 0) {
        let named = (file.name.clone(), file.whole.clone());
        orders.entry(file.rank).or_default().push(named);
    }
    let orders = orders
        .into_iter()
        .map(|(rank, files)| Order { rank, files });
    let orders: Vec<Order> = orders.collect();
    let own = shared.files.iter().filter(|file| file.rank == 0);
    let own = own.map(|file| (&*file.name, &file.contents));
    let mut written = Ok(Vec::new());
    let answers = shared.ranks.write(folder, &orders, &mut || {
        written = write_files(fs, folder, own.clone());
    });
    let mut listed = written?;
    for of_rank in answers {
        let of_rank = of_rank.map_err(io::Error::other);
        listed.extend(of_rank.map_err(Failure::to("write", folder))?);
    }
    let mut by_name: HashMap<String, Listed> = HashMap::new();
    by_name.extend(listed.into_iter().map(|file| (file.name.clone(), file)));
    let in_order = shared.files.iter().map(|file| {
        let path = folder.join(&file.name);
        let (listed, bytes) = (by_name.remove(&file.name), file.contents.bytes());
        let kind = retry(|| fs.kind(&path)).map_err(Failure::to("find", &path))?;
        match listed {
            Some(listed) if listed.bytes == bytes && kind == Kind::File(bytes) => Ok(listed),
            _ => {
                let message = format!("rank {} wrote another file", file.rank);
                Err(Failure::to("find", &path)(io::Error::other(message)))
            }
        }
    });
    in_order.collect()
}

/// Writes files of a checkpoint into folders that are there, and syncs both: what a rank that is not the first does.
///
/// # Errors
/// The first call that failed.
pub fn write_part<F: Fs>(
    fs: &mut F,
    folder: &Path,
    files: &[(&str, &FileContents)],
) -> Result<Vec<Listed>, Failure> {
    let listed = write_files(fs, folder, files.iter().copied())?;
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    for folder in folders(folder, &names)
        .iter()
        .map(PathBuf::as_path)
        .chain([folder])
    {
        retry(|| fs.sync_dir(folder)).map_err(Failure::to("sync", folder))?;
    }
    Ok(listed)
}

/// Writes and syncs files whose folders are there.
fn write_files<'a, F: Fs>(
    fs: &mut F,
    folder: &Path,
    files: impl Iterator<Item = (&'a str, &'a FileContents)>,
) -> Result<Vec<Listed>, Failure> {
    let written = files.map(|(name, contents)| {
        Ok(Listed {
            name: name.to_owned(),
            bytes: contents.bytes(),
            sha256: write_file(fs, &folder.join(name), contents)?,
        })
    });
    written.collect()
}

/// Writes a file and gives the digest of its bytes.
pub fn write_file<F: Fs>(
    fs: &mut F,
    path: &Path,
    contents: &FileContents,
) -> Result<String, Failure> {
    let mut file = retry(|| fs.create(path)).map_err(Failure::to("make", path))?;
    let mut digest = Sha256::new();
    let take = |mut rest: &[u8]| {
        digest.update(rest);
        while !rest.is_empty() {
            let written =
                retry(|| fs.write(&mut file, rest)).map_err(Failure::to("write", path))?;
            if written == 0 {
                return Err(Failure::to("write", path)(ErrorKind::WriteZero.into()));
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    };
    contents.give(take, |error| {
        Failure::to("write", path)(io::Error::other(error))
    })?;
    retry(|| fs.sync(&mut file)).map_err(Failure::to("sync", path))?;
    Ok(hexadecimal(&digest.finalize()))
}
