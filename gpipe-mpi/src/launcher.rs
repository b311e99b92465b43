//! The launcher of this process, from the variables that it sets.

use std::env;
#[cfg(unix)]
use std::fs;
use std::path::{Path, PathBuf};

/// A launcher that started this process as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launcher {
    /// Its name.
    pub name: &'static str,
    /// The rank of this process, from 0.
    pub rank: usize,
    /// The ranks that it started.
    pub ranks: usize,
    /// The folder of the libraries beside the launcher, if an MPI is there.
    pub libraries: Option<PathBuf>,
}

/// A launcher's name, and its variables of rank and ranks. Those of a job's step are not set in the script of
/// the job itself.
const LAUNCHERS: [(&str, &str, &str); 3] = [
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("a PMI launcher", "PMI_RANK", "PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Names of libraries.
const OPEN_MPI: &str = "libmpi.so.40";
const STANDARD: &str = "libmpi_abi.so.1";
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];

impl Launcher {
    /// The launcher of this process; `None` for a process that was started by itself. Where the variables of several are
    /// set, as by a launcher that another one started, it is the one whose library lies beside the nearest launcher.
    pub fn of_environment() -> Option<Self> {
        Self::of(|name| env::var(name).ok(), beside_launcher)
    }

    fn of(
        variable: impl Fn(&str) -> Option<String>,
        beside: impl Fn() -> Option<PathBuf>,
    ) -> Option<Self> {
        let number = |name| variable(name)?.parse().ok();
        let found = LAUNCHERS.into_iter().filter_map(|(name, rank, ranks)| {
            let (rank, ranks) = (number(rank)?, number(ranks)?);
            let libraries = None;
            (rank < ranks).then_some(Self {
                name,
                rank,
                ranks,
                libraries,
            })
        });
        let mut found: Vec<Self> = found.collect();
        let libraries = (!found.is_empty()).then(beside).flatten();
        let fits = |one: &Self| libraries.as_deref().is_some_and(|folder| one.fits(folder));
        let likeliest = found.iter().position(fits).unwrap_or(0);
        (likeliest < found.len()).then(|| Self {
            libraries,
            ..found.swap_remove(likeliest)
        })
    }

    /// Whether the library of this launcher is in a folder.
    fn fits(&self, folder: &Path) -> bool {
        let own = match self.name {
            name if name == LAUNCHERS[0].0 => &[OPEN_MPI][..],
            name if name == LAUNCHERS[1].0 => &[STANDARD, MPICH[0], MPICH[1]],
            _ => &[],
        };
        own.iter().any(|name| folder.join(name).exists())
    }

    /// Whether it is that of Open MPI.
    pub fn is_open_mpi(&self) -> bool {
        self.name == LAUNCHERS[0].0
    }

    /// The names of libraries, the likeliest first.
    pub(crate) fn library_names(this: Option<&Self>) -> [&'static str; 4] {
        match this {
            Some(Self { name, .. }) if *name == LAUNCHERS[1].0 => {
                [STANDARD, MPICH[0], MPICH[1], OPEN_MPI]
            }
            _ => [OPEN_MPI, STANDARD, MPICH[0], MPICH[1]],
        }
    }
}

/// `../lib` of the program that started this one, or of the nearest before it that has an MPI there: a script may stand between
/// the launcher and this process. Where the system tells it (Linux).
fn beside_launcher() -> Option<PathBuf> {
    #[cfg(unix)]
    {
        let mut process = std::os::unix::process::parent_id();
        while process > 0 {
            // Programs of other users are not told.
            let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            let libraries = program.parent().and_then(Path::parent);
            let libraries = libraries.map(|folder| folder.join("lib"));
            let has_mpi = |folder: &PathBuf| {
                let names = Launcher::library_names(None);
                names.iter().any(|name| folder.join(name).exists())
            };
            if let Some(libraries) = libraries.filter(has_mpi) {
                return Some(libraries);
            }
            let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
            process = parent?.trim().parse().ok()?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    fn of(set: &[(&str, &str)], beside: Option<&Path>) -> Option<(&'static str, usize, usize)> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = Launcher::of(variable, || beside.map(Path::to_owned))?;
        assert_eq!(found.libraries.as_deref(), beside);
        Some((found.name, found.rank, found.ranks))
    }

    #[test]
    fn a_launcher_is_known_by_its_variables() {
        let of = |set: &[(&str, &str)]| of(set, None);
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(of(&open), Some(("Open MPI", 1, 4)));
        assert_eq!(
            of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]),
            Some(("a PMI launcher", 0, 2))
        );
        // The script of a job is one process, however many tasks the job has.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None);
        assert_eq!(of(&open[..1]), None);
        // Left over from something else.
        for [rank, ranks] in [
            ["2", "2"],
            ["0", "0"],
            ["0", "-3"],
            ["0", "99999999999999999999"],
        ] {
            assert_eq!(of(&[("PMI_RANK", rank), ("PMI_SIZE", ranks)]), None);
        }
    }

    #[test]
    fn of_two_launchers_the_nearest_one_counts() {
        let set = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "1"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
        ];
        let (open, mpich) = (Some(("Open MPI", 0, 1)), Some(("a PMI launcher", 1, 2)));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(of(&set, None), open);
        assert_eq!(of(&set, Some(folder.path())), open);
        write(folder.path().join(MPICH[0]), "").unwrap();
        assert_eq!(of(&set, Some(folder.path())), mpich);
        // A folder of the system may hold both.
        write(folder.path().join(OPEN_MPI), "").unwrap();
        assert_eq!(of(&set, Some(folder.path())), open);
    }
}
