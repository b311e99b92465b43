//! Reading a checkpoint's folder, which is not trusted: lengths and kinds are checked before anything
//! is read.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::fs::{Fs, Kind, retry};
use super::manifest::{clip, hexadecimal};
use super::names;

/// The kind of a file or folder that messages call `name`.
pub fn kind<F: Fs>(fs: &F, path: &Path, name: &str) -> Result<Kind, Fault> {
    retry(|| fs.kind(path)).map_err(Fault::unreadable(name))
}

/// Adds the files below a folder to `found`, by their names in the manifest. Anything that is neither
/// file nor folder is a fault, and so is a folder too deep to hold a file of a checkpoint.
pub fn names_below<F: Fs>(
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
    for name in retry(|| fs.list(folder)).map_err(Fault::unreadable(here))? {
        // A manifest lists no other.
        let Some(text) = name
            .to_str()
            .filter(|text| !text.contains(char::is_control))
        else {
            let name = clip(&name.to_string_lossy());
            return Err(Fault::Extra(format!("{prefix}{name}")));
        };
        let (path, name) = (folder.join(&name), format!("{prefix}{text}"));
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

/// Opens a file below a folder and gives its length.
fn open<'a, F: Fs>(
    fs: &'a F,
    folder: &Path,
    name: &str,
) -> Result<(Box<dyn Read + 'a>, u64), Fault> {
    let path = folder.join(name);
    match kind(fs, &path, name)? {
        Kind::File(length) => {
            let file = retry(|| fs.open(&path)).map_err(Fault::unreadable(name))?;
            Ok((file, length))
        }
        _ => Err(Fault::NotAFile(name.to_owned())),
    }
}

/// The bytes of a file that has at most `most`. No more is ever allocated than the file has.
pub fn read<F: Fs>(fs: &F, folder: &Path, name: &str, most: u64) -> Result<Vec<u8>, Fault> {
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
        .map_err(|error| Fault::unreadable(name)(io::Error::other(error)))?;
    // It may have grown since: one byte more than allowed is enough to tell.
    file.take(length + 1)
        .read_to_end(&mut bytes)
        .map_err(Fault::unreadable(name))?;
    match bytes.len() as u64 {
        got if got > length => Err(too_long(got)),
        _ => Ok(bytes),
    }
}

/// Length and digest of a file that should have `bytes` bytes; at most one piece more is read.
pub fn measure<F: Fs>(
    fs: &F,
    folder: &Path,
    name: &str,
    bytes: u64,
) -> Result<(u64, String), Fault> {
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
            Err(error) => return Err(Fault::unreadable(name)(error)),
        }
    }
    Ok((got, hexadecimal(&digest.finalize())))
}
