//! The library: found, opened, and started in its dialect.

use std::path::Path;

use libloading::Library;

use crate::api::{MPICH, STANDARD, open_mpi};
use crate::error::Error;
use crate::launcher::Launcher;
use crate::session::{Calls, Session};

/// Opens and starts the library `named`, or else the launcher's, or else the loader's.
pub(crate) fn start(
    named: Option<&Path>,
    launcher: Option<&Launcher>,
) -> Result<Box<dyn Calls>, Error> {
    let names = Launcher::library_names(launcher);
    let beside = launcher.and_then(|launcher| launcher.libraries.as_ref());
    let beside = beside
        .into_iter()
        .flat_map(|folder| names.map(|name| folder.join(name)));
    let candidates = match named {
        Some(named) => vec![named.to_owned()],
        None => beside
            .filter(|path| path.exists())
            .chain(names.map(Into::into))
            .collect(),
    };
    let mut tried: Vec<String> = Vec::new();
    for path in candidates {
        match open(&path) {
            Ok(library) => {
                let session = started(library, &path)?;
                return fits(session, launcher, &path);
            }
            Err(error) => tried.push(error.to_string()),
        }
    }
    Err(Error::NotFound {
        tried: tried.join("; "),
    })
}

fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the library is an MPI by its name or by the user's word; its initializers may run.
    #[cfg(unix)]
    unsafe {
        use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_NOW};
        // Open MPI's components look for its symbols in the global scope.
        unix::Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL).map(Library::from)
    }
    // SAFETY: as above.
    #[cfg(not(unix))]
    unsafe {
        Library::new(path)
    }
}

fn started(library: Library, path: &Path) -> Result<Box<dyn Calls>, Error> {
    let is_standard = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains("mpi_abi"));
    if is_standard {
        return Ok(Box::new(Session::start(library, STANDARD, path)?));
    }
    match open_mpi(&library) {
        Some(constants) => Ok(Box::new(Session::start(library, constants, path)?)),
        None => Ok(Box::new(Session::start(library, MPICH, path)?)),
    }
}

/// Refuses the library of another launcher: every process would be alone.
fn fits(
    mut session: Box<dyn Calls>,
    launcher: Option<&Launcher>,
    path: &Path,
) -> Result<Box<dyn Calls>, Error> {
    match launcher {
        Some(launcher) if launcher.ranks != session.ranks() => {
            let seen = session.ranks();
            // The error counts, not what follows from it.
            let _ = session.finalize();
            Err(Error::WrongLibrary {
                launcher: launcher.name,
                started: launcher.ranks,
                library: path.display().to_string(),
                seen,
            })
        }
        _ => Ok(session),
    }
}
