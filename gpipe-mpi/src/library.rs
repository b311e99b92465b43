//! The library: found, opened, and started in its dialect.

use std::error::Error as _;
use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::api::{Constants, MPICH, STANDARD, open_mpi};
use crate::error::Error;
use crate::launcher::Launcher;
use crate::session::{Calls, Session};

/// An MPI library that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundLibrary {
    /// Its file, where the system tells it, or else the name that the loader found.
    pub path: PathBuf,
    /// The rule by which it was found.
    pub rule: &'static str,
    /// The binary interface that is used of it.
    pub dialect: &'static str,
    /// Its name and version, by itself, in one line.
    pub version: String,
}

const NAMED: &str = "named by --mpi";
const BESIDE: &str = "beside the launcher";
const LOADER: &str = "on the path of the loader";

/// The library that [`MpiTransport::start`](crate::MpiTransport::start) would open, which is not started.
///
/// # Errors
/// [`Error::NotFound`] with what was tried.
pub fn find(launcher: Option<&Launcher>) -> Result<FoundLibrary, Error> {
    opened(None, launcher).map(|(_, _, found)| found)
}

/// Opens and starts the library `named`, or else the launcher's, or else the loader's.
pub(crate) fn start(
    named: Option<&Path>,
    launcher: Option<&Launcher>,
) -> Result<(Box<dyn Calls>, FoundLibrary), Error> {
    let (library, dialect, found) = opened(named, launcher)?;
    let path = &found.path;
    if let Some(launcher) = launcher.filter(|launcher| is_refused(launcher, &found.version)) {
        return Err(Error::OtherMpi {
            launcher: launcher.name,
            library: path.display().to_string(),
            version: found.version,
        });
    }
    let session: Box<dyn Calls> = match dialect {
        Dialect::Standard => Box::new(Session::start(library, STANDARD, path)?),
        Dialect::OpenMpi(constants) => Box::new(Session::start(library, constants, path)?),
        Dialect::Mpich => Box::new(Session::start(library, MPICH, path)?),
    };
    Ok((fits(session, launcher, path)?, found))
}

/// The first library that opens.
fn opened(
    named: Option<&Path>,
    launcher: Option<&Launcher>,
) -> Result<(Library, Dialect, FoundLibrary), Error> {
    let names = Launcher::library_names(launcher);
    let beside = launcher.and_then(|launcher| launcher.libraries.as_ref());
    let beside = beside
        .into_iter()
        .flat_map(|folder| names.map(|name| (folder.join(name), BESIDE)));
    let candidates = match named {
        Some(named) => vec![(named.to_owned(), NAMED)],
        None => beside
            .filter(|(path, _)| path.exists())
            .chain(names.map(|name| (name.into(), LOADER)))
            .collect(),
    };
    let mut tried: Vec<String> = Vec::new();
    for (path, rule) in candidates {
        match open(&path) {
            Ok(library) => {
                let dialect = Dialect::of(&library, &path);
                let found = FoundLibrary {
                    dialect: dialect.name(),
                    version: version(&library),
                    path: loaded_from(&path).unwrap_or(path),
                    rule,
                };
                return Ok((library, dialect, found));
            }
            Err(error) => tried.push(match error.source() {
                // Names the file.
                Some(cause) => cause.to_string(),
                None => format!("{}: {error}", path.display()),
            }),
        }
    }
    Err(Error::NotFound {
        tried: tried.join("; "),
    })
}

/// The binary interface of a library.
enum Dialect {
    Standard,
    OpenMpi(Constants<usize>),
    Mpich,
}

impl Dialect {
    fn of(library: &Library, path: &Path) -> Self {
        // A link may have the name of another's.
        let file = path.canonicalize();
        let name = file.as_deref().unwrap_or(path).file_name();
        match name.is_some_and(|name| name.to_string_lossy().contains("mpi_abi")) {
            true => Self::Standard,
            false => open_mpi(library).map_or(Self::Mpich, Self::OpenMpi),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Standard => "the standard ABI of MPI 5",
            Self::OpenMpi(_) => "Open MPI's own",
            Self::Mpich => "MPICH's own",
        }
    }
}

/// What a library says of itself: the first line, which some follow with many.
fn version(library: &Library) -> String {
    // SAFETY: the caller gives two places that live until the call returns.
    type Call = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // More than MPI_MAX_LIBRARY_VERSION_STRING of every dialect.
    let (mut text, mut length) = (vec![0_u8; 1 << 16], 0);
    // SAFETY: the type is that of the standard's C binding; it may be called before MPI_Init (MPI 3.1, 8.1.1).
    // The text has room for the longest, and both live until the call returns.
    unsafe {
        let Ok(call) = library.get::<Call>(b"MPI_Get_library_version\0") else {
            return String::new();
        };
        call(text.as_mut_ptr().cast(), &raw mut length);
    }
    text.truncate(usize::try_from(length).unwrap_or(0));
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split([' ', '\t', '\0']).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The file of an open library that was named without a folder (Linux).
fn loaded_from(name: &Path) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut files = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let name = name.to_str().filter(|name| !name.contains('/'))?;
    let is_it = |file: &&Path| {
        let file = file.file_name().map(std::ffi::OsStr::to_string_lossy);
        file.is_some_and(|file| file.starts_with(name))
    };
    files.find(is_it).map(Path::to_owned)
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

/// Whether a library would end the process in MPI_Init under this launcher, with a text of its own: MPICH and its
/// kin do not speak the protocol of Open MPI's launcher, PMIx, unless they are built for it.
fn is_refused(launcher: &Launcher, version: &str) -> bool {
    let is_mpich = ["MPICH", "Intel(R) MPI"]
        .iter()
        .any(|name| version.starts_with(name));
    launcher.is_open_mpi() && is_mpich
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A link to the library of one binary interface may have the name of another's.
    #[cfg(unix)]
    #[test]
    fn a_link_has_the_dialect_of_its_library() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["libmpi_abi.so.1", "libmpi.so"].map(|name| folder.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let any = Library::from(libloading::os::unix::Library::this());
        let dialect = |path: &Path| Dialect::of(&any, path).name();
        assert_eq!(dialect(&link), "the standard ABI of MPI 5");
        assert_eq!(dialect(Path::new("libmpi_abi.so.1")), dialect(&file));
        assert_eq!(dialect(Path::new("libmpi.so.12")), "MPICH's own");
    }

    #[test]
    fn mpich_is_refused_under_the_launcher_of_open_mpi() {
        let launcher = |name| Launcher {
            name,
            rank: 0,
            ranks: 2,
            libraries: None,
        };
        let (open, other) = (launcher("Open MPI"), launcher("a PMI launcher"));
        assert!(is_refused(&open, "MPICH Version: 5.0.2"));
        assert!(!is_refused(&open, "Open MPI v5.0.11, package: Open MPI"));
        assert!(!is_refused(&other, "MPICH Version: 5.0.2"));
    }
}
