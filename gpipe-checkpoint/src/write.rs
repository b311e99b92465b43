//! Writing a checkpoint so that at every moment, power loss included, the one before it or the new
//! one stands whole.
//!
//! ```text
//! .partial-step-00000120/*   written, each file and folder synced
//!   └─ rename ─► step-00000120, synced      from here on it is the newest
//!        └─ latest.new ─ rename ─► latest   says so to others; then it is acknowledged
//!             └─ older ones ─ rename ─► .discarded-*, synced, deleted
//! ```

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gpipe_tensor::safetensors::FileContents;

use super::checkpoint::verify;
use super::failure::Failure;
use super::files::{Shared, write_all, write_file};
use super::fs::{Disk, Fs, Kind, retry};
use super::names;

/// Writes the checkpoint of a step into the folder of checkpoints and points to it; gives its size in
/// bytes. When this returns, the checkpoint survives a loss of power; if it fails, those before it are
/// as they were. `files` is all of it; `shared` the same in the parts that ranks write if all of them find the folder.
///
/// # Errors
/// The first call that failed.
pub fn commit<F: Fs>(
    fs: &mut F,
    home: &Path,
    step: u64,
    files: &[(String, FileContents)],
    shared: Option<&Shared>,
) -> Result<u64, Failure> {
    make_home(fs, home)?;
    sweep(fs, home);
    let name = names::of_step(step);
    // A rank of a run that was killed may still write to the folder that it was told.
    let token = shared.map_or(String::new(), |shared| format!("-{}", shared.token));
    let partial = free_name(fs, home, &format!("{}{name}{token}", names::PARTIAL))?;
    let written = write_all(fs, &partial, step, files, shared).and_then(|bytes| {
        let target = home.join(name.as_str());
        let damaged = make_way(fs, home, step)?;
        retry(|| fs.rename(&partial, &target)).map_err(Failure::to("name", &target))?;
        retry(|| fs.sync_dir(home)).map_err(Failure::to("sync", home))?;
        if let Some(damaged) = damaged {
            // If it cannot go now, the next save sweeps it.
            let _ = remove_tree(fs, &damaged);
        }
        Ok(bytes)
    });
    if written.is_err() {
        // It takes room that the disk may not have; if it cannot go now, the next save sweeps it.
        let _ = remove_tree(fs, &partial);
    }
    let bytes = written?;
    point(fs, home, names::LATEST, &name)?;
    Ok(bytes)
}

/// Points to a checkpoint.
///
/// # Errors
/// The first call that failed; the pointer then names what it did before.
pub fn point<F: Fs>(fs: &mut F, home: &Path, pointer: &str, name: &str) -> Result<(), Failure> {
    let (new, path) = (
        home.join(format!("{}{pointer}", names::PARTIAL)),
        home.join(pointer),
    );
    let _ = remove_tree(fs, &new);
    write_file(fs, &new, &format!("{name}\n").into_bytes().into())?;
    // A folder would not give its name to a file: it is set aside with what is in it.
    match retry(|| fs.kind(&path)) {
        Ok(Kind::Folder) => {
            let aside = free_name(fs, home, &format!("{}{pointer}", names::DAMAGED))?;
            retry(|| fs.rename(&path, &aside)).map_err(Failure::to("replace", &path))?;
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::to("read", &path)(error));
        }
        _ => {}
    }
    retry(|| fs.rename(&new, &path)).map_err(Failure::to("name", &path))?;
    retry(|| fs.sync_dir(home)).map_err(Failure::to("sync", home))
}

/// Deletes all but the `keep` newest and the best, after the checkpoint of `step` was saved. Later ones,
/// from which the run did not go on because they are damaged, are neither counted nor deleted.
///
/// # Errors
/// The first call that failed; what was not deleted is whole or swept by the next save.
pub fn prune<F: Fs>(
    fs: &mut F,
    home: &Path,
    step: u64,
    keep: usize,
    best: Option<u64>,
) -> Result<(), Failure> {
    let entries = retry(|| fs.list(home)).map_err(Failure::to("read", home))?;
    let mut steps: Vec<u64> = entries
        .iter()
        .filter_map(|name| names::step_of(name.to_str()?))
        .filter(|&found| found <= step)
        .collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    let mut discarded = Vec::new();
    for step in steps
        .into_iter()
        .skip(keep)
        .filter(|&step| Some(step) != best)
    {
        let name = names::of_step(step);
        let path = home.join(&name);
        let new = free_name(fs, home, &format!("{}{name}", names::DISCARDED))?;
        retry(|| fs.rename(&path, &new)).map_err(Failure::to("delete", &path))?;
        discarded.push(new);
    }
    if discarded.is_empty() {
        return Ok(());
    }
    // Before anything in it is gone, nothing may be called a checkpoint any more.
    retry(|| fs.sync_dir(home)).map_err(Failure::to("sync", home))?;
    for path in discarded {
        remove_tree(fs, &path).map_err(Failure::to("delete", &path))?;
    }
    Ok(())
}

/// Removes all checkpoints of the run in a folder, whole or not, and the pointers to them. Anything
/// else is left alone.
///
/// # Errors
/// [`Failure`] that names the folder of checkpoints.
pub fn remove_all(run: &Path) -> Result<(), Failure> {
    let home = run.join(names::FOLDER);
    remove_checkpoints(&mut Disk, &home).map_err(Failure::to("delete", &home))
}

fn remove_checkpoints<F: Fs>(fs: &mut F, home: &Path) -> io::Result<()> {
    let entries = match fs.list(home) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let ours = |name: &OsString| {
        let name = name.to_string_lossy();
        let begins = [names::PARTIAL, names::DISCARDED, names::DAMAGED];
        names::step_of(&name).is_some()
            || [names::LATEST, names::BEST].contains(&&*name)
            || begins.iter().any(|begin| name.starts_with(begin))
    };
    for name in entries.iter().filter(|name| ours(name)) {
        remove_tree(fs, &home.join(name))?;
    }
    // A link to a folder elsewhere stays.
    match fs.list(home)?.is_empty() && fs.kind(home)? == Kind::Folder {
        true => fs.remove_dir(home),
        false => Ok(()),
    }
}

/// Frees the name of a checkpoint. A run that went on from an older one saves over one that is damaged,
/// and gives the path that it has until it is deleted; nothing else is replaced.
fn make_way<F: Fs>(fs: &mut F, home: &Path, step: u64) -> Result<Option<PathBuf>, Failure> {
    let name = names::of_step(step);
    let target = home.join(&name);
    if retry(|| fs.kind(&target)).is_err() {
        return Ok(None);
    }
    match verify(fs, &target, Some(step), u64::MAX) {
        Err(fault) if fault.is_damage() => {
            let damaged = free_name(fs, home, &format!("{}{name}", names::DISCARDED))?;
            retry(|| fs.rename(&target, &damaged)).map_err(Failure::to("replace", &target))?;
            Ok(Some(damaged))
        }
        _ => Err(Failure::to("make", &target)(
            ErrorKind::AlreadyExists.into(),
        )),
    }
}

/// Makes a folder, and that around it again if it was moved away or removed while a run trained: what the run has learned
/// is to be saved.
fn make_home<F: Fs>(fs: &mut F, home: &Path) -> Result<(), Failure> {
    let above = home.parent().filter(|above| !above.as_os_str().is_empty());
    let mut made = retry(|| fs.create_dir(home));
    if let (Err(error), Some(above)) = (&made, above)
        && error.kind() == ErrorKind::NotFound
    {
        make_home(fs, above)?;
        made = retry(|| fs.create_dir(home));
    }
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made.map_err(Failure::to("make", home))?,
    }
    let above = above.unwrap_or(Path::new("."));
    retry(|| fs.sync_dir(above)).map_err(Failure::to("sync", above))
}

/// Removes the remains of interrupted saves and deletions. What cannot be removed stays: it is in
/// nobody's way.
fn sweep<F: Fs>(fs: &mut F, home: &Path) {
    for name in retry(|| fs.list(home)).unwrap_or_default() {
        let text = name.to_string_lossy();
        if text.starts_with(names::PARTIAL) || text.starts_with(names::DISCARDED) {
            let _ = remove_tree(fs, &home.join(&name));
        }
    }
}

/// A path that nothing has yet: of the given name, or of that with a number.
fn free_name<F: Fs>(fs: &F, home: &Path, name: &str) -> Result<PathBuf, Failure> {
    let numbered = (2..100).map(|number| format!("{name}-{number}"));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    let free = candidates.find(|name| match retry(|| fs.kind(&home.join(name))) {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(_) => false,
    });
    match free {
        Some(name) => Ok(home.join(name)),
        None => Err(Failure::to("make", &home.join(name))(
            ErrorKind::AlreadyExists.into(),
        )),
    }
}

/// Removes a file, or a folder with what is in it.
fn remove_tree<F: Fs>(fs: &mut F, path: &Path) -> io::Result<()> {
    match retry(|| fs.kind(path))? {
        Kind::Folder => {
            for name in retry(|| fs.list(path))? {
                remove_tree(fs, &path.join(name))?;
            }
            retry(|| fs.remove_dir(path))
        }
        _ => retry(|| fs.remove_file(path)),
    }
}
