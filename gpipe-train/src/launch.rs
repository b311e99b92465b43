//! The ranks of a run under an MPI launcher.

use std::path::Path;
use std::sync::Arc;

use gpipe_mpi::{FoundLibrary, Launcher, MpiTransport};
use gpipe_report::{FoundMpi, FoundRank};
use gpipe_sched::{Parcel, World};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::ranks::ranks_of;
use crate::resume::VERSION;

/// A process among those of a launcher.
#[non_exhaustive]
pub struct Launched {
    /// All of them.
    pub world: Arc<World>,
    /// What started them.
    pub launcher: Launcher,
    /// Where each of them runs, without devices.
    pub ranks: Vec<FoundRank>,
    /// What they pass messages through.
    pub library: FoundLibrary,
}

/// The MPI of this process, or the one that it would open without a launcher.
pub fn found_mpi(launched: Option<&Launched>) -> FoundMpi {
    let found = match launched {
        Some(launched) => Ok(launched.library.clone()),
        None => gpipe_mpi::find(None),
    };
    let mut mpi = FoundMpi {
        launcher: launched.map(|launched| launched.launcher.name.to_owned()),
        ranks: launched.map_or(1, |launched| launched.ranks.len()),
        ..FoundMpi::default()
    };
    match found {
        Ok(found) => {
            mpi.usable = true;
            mpi.library = Some(found.path.display().to_string());
            mpi.rule = Some(found.rule.to_owned());
            mpi.dialect = Some(found.dialect.to_owned());
            mpi.version = Some(found.version);
        }
        Err(_) => {
            mpi.reason = Some(
                "no MPI library on the path of the loader; under mpirun or srun, that beside the launcher is used"
                    .to_owned(),
            );
        }
    }
    mpi
}

/// Starts MPI if a launcher started this process as one of several. `library` names one; else it is
/// sought beside the launcher, and then on the loader's path.
///
/// # Errors
/// [`Error::Input`] if there is none, or it is not the launcher's; [`Error::Invalid`] for a library without a
/// launcher.
pub fn join_launcher(library: Option<&Path>) -> Result<Option<Launched>> {
    let launcher = match (Launcher::of_environment(), library) {
        (Some(launcher), _) if launcher.ranks > 1 => launcher,
        (None, Some(library)) => {
            return Err(Error::invalid(format!(
                "--mpi {}, but no launcher started this process: start it with mpirun or srun, or leave --mpi out",
                library.display()
            )));
        }
        _ => return Ok(None),
    };
    let transport = MpiTransport::start(library, Some(&launcher)).map_err(Error::input)?;
    let library = transport.library().clone();
    let world = World::new(transport);
    Ok(Some(Launched {
        ranks: ranks_of(&world, &[])?,
        library,
        world,
        launcher,
    }))
}

/// Refuses several replicas without a launcher.
///
/// # Errors
/// [`Error::Invalid`] with the way to start them.
pub(crate) fn check_replicas(world: Option<&World>, config: &TrainConfig) -> Result<()> {
    let replicas = config.pipeline.replicas.get();
    match world {
        None if replicas > 1 => Err(Error::invalid(format!(
            "{replicas} replicas but one process: start them with mpirun or srun, or use \
             `pipeline.replicas = 1`, which gives the same bits with `pipeline.groups = {}`",
            config.pipeline.groups.get()
        ))),
        _ => Ok(()),
    }
}

/// Refuses ranks that were not started alike. Threads may differ.
///
/// # Errors
/// [`Error::Invalid`] with the first such rank.
pub(crate) fn check_alike(world: &World, config: &TrainConfig) -> Result<()> {
    let mut alike = config.clone();
    alike.pipeline.threads = alike.pipeline.single().map_err(Error::invalid)?.threads;
    let head = format!("{VERSION}\n{}", alike.to_toml()?).into_bytes();
    let own = Parcel {
        head,
        bodies: Vec::new(),
    };
    let all = world.share(own, None).map_err(Error::run)?;
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "rank {rank} ({}) has another configuration or version of gpipe than rank 0: start all ranks with \
             the same program and flags",
            world.host(rank)
        ))),
    }
}
