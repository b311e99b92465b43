//! The ranks of a run under an MPI launcher.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpipe_checkpoint::Checkpoint;
use gpipe_data::Dataset;
use gpipe_mpi::{FoundLibrary, Launcher, MpiTransport};
use gpipe_report::{FoundMpi, FoundRank};
use gpipe_sched::{Parcel, World};

use crate::config::{NcclUse, TrainConfig};
use crate::error::{Error, Result};
use crate::machine;
use crate::ranks::ranks_of;

/// The version of this program, which all ranks have, and which checkpoints record.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A process among those of a launcher.
#[derive(Debug)]
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
/// sought beside the launcher, and then on the loader's path. A rank that gives no sign of life for `silence` seconds
/// has failed.
///
/// # Errors
/// [`Error::Input`] if there is none, or it is not the launcher's; [`Error::Invalid`] for a library without a
/// launcher.
pub fn join_launcher(library: Option<&Path>, silence: u64) -> Result<Option<Launched>> {
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
    let silence = Duration::from_secs(silence);
    let transport = MpiTransport::start(library, Some(&launcher), silence).map_err(Error::input)?;
    let library = transport.library().clone();
    let world = World::new(transport);
    Ok(Some(Launched {
        ranks: ranks_that_begin(&world)?,
        library,
        world,
        launcher,
    }))
}

/// All ranks. Where one has failed before all knew of each other, this one ends as the others do, which have begun: at its
/// next call.
fn ranks_that_begin(world: &World) -> Result<Vec<FoundRank>> {
    let threads = machine::host_threads();
    match ranks_of(world, &[]) {
        Err(_) if world.is_over() => Ok((0..world.ranks())
            .map(|rank| FoundRank {
                rank,
                host: world.host(rank),
                threads,
                host_threads: threads,
                ..FoundRank::default()
            })
            .collect()),
        ranks => ranks,
    }
}

/// Whether this process is the first of those that its launcher started, or was started by itself.
pub fn is_first_rank() -> bool {
    Launcher::of_environment().is_none_or(|launcher| launcher.rank == 0)
}

/// What stops a run under the launcher of this process, if that is not what stops other runs: Open MPI's sends SIGKILL a quarter
/// of a second after SIGTERM (a constant in the source of PRRTE 3.0.9 to 4.1.0).
pub fn stopping() -> Option<&'static str> {
    let is_open_mpi = Launcher::of_environment()?.is_open_mpi();
    is_open_mpi.then_some(
        "mpirun of Open MPI kills its ranks within a second of Ctrl-C or SIGTERM: kill -USR1 of mpirun stops this run and saves",
    )
}

/// Refuses several replicas, or a demand of NCCL, without a launcher.
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
        None if *config.run.nccl == NcclUse::On => Err(Error::invalid(
            "run.nccl = on but one process, whose GPUs need no NCCL: start several with mpirun or srun, or leave \
             `run.nccl` out",
        )),
        _ => Ok(()),
    }
}

/// Refuses ranks that were not started alike. Threads may differ, and processors: of those the warning tells, since
/// types of processor differ in bits.
///
/// # Errors
/// [`Error::Invalid`] with the first such rank.
pub(crate) fn check_alike(world: &World, config: &TrainConfig) -> Result<Option<String>> {
    let mut alike = config.clone();
    alike.pipeline.threads = alike.pipeline.single().map_err(Error::invalid)?.threads;
    let all = Shared::new(
        world,
        [
            format!("{VERSION}\n{}", alike.to_toml()?),
            machine::instructions(*config.run.instruction_set),
            config.model.name.clone(),
        ],
    )?;
    let [configurations, processors, models] = [0, 1, 2];
    if let Some(rank) = all.other(models) {
        return Err(Error::invalid(format!(
            "{} has the model {}, but {} {}: start all ranks with the same checkpoint or model",
            all.name(rank),
            all.text(rank, models),
            all.name(0),
            all.text(0, models)
        )));
    }
    if let Some(rank) = all.other(configurations) {
        return Err(Error::invalid(format!(
            "{} has another configuration or version of gpipe than rank 0: start all ranks with the same program and \
             flags",
            all.name(rank)
        )));
    }
    Ok(all.other(processors).map(|rank| {
        format!(
            "{} has {}, but {} {}: bits differ between types of processor; `run.instruction_set` chooses one that all \
             have",
            all.name(rank),
            all.text(rank, processors),
            all.name(0),
            all.text(0, processors)
        )
    }))
}

/// Refuses ranks that read other samples than rank 0, or resume from another checkpoint: each reads the files of its host.
///
/// # Errors
/// [`Error::Invalid`] with the first such rank.
pub(crate) fn check_same_files(
    world: &World,
    dataset: &Dataset,
    checkpoint: Option<&Checkpoint>,
) -> Result<()> {
    let step =
        checkpoint.map(|checkpoint| format!("the checkpoint after step {}", checkpoint.step()));
    let files = checkpoint.map(|checkpoint| checkpoint.manifest().digest());
    let files = files.transpose().map_err(Error::run)?;
    let all = Shared::new(
        world,
        [
            step.unwrap_or_default(),
            files.unwrap_or_default(),
            dataset.digest(),
        ],
    )?;
    let [steps, files, samples] = [0, 1, 2];
    if let Some(rank) = all.other(steps).or_else(|| all.other(files)) {
        let of_rank = match all.other(steps) {
            Some(_) => all.text(rank, steps),
            None => "another one".to_owned(),
        };
        return Err(Error::invalid(format!(
            "{} resumes from {}, but {} from {of_rank}: copy the run's folder of {} to the same path on each host",
            all.name(0),
            all.text(0, steps),
            all.name(rank),
            all.name(0)
        )));
    }
    match all.other(samples) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "{} reads other samples than {}: copy the files of `data.source`, and of `data.target` and \
             `data.tokenizer` if they are set, to the same paths on each host",
            all.name(rank),
            all.name(0)
        ))),
    }
}

/// Refuses ranks that start from other weights than rank 0. Every rank calls it, with the digests of its weights.
///
/// # Errors
/// [`Error::Invalid`] with the first such rank.
pub(crate) fn check_same_weights(world: &World, digests: String) -> Result<()> {
    let all = Shared::new(world, [digests])?;
    match all.other(0) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "{} has other weights than {}: copy the files of `model.name`, or of `model.weights` and `lora.adapter` if \
             they are set, to the same paths on each host",
            all.name(rank),
            all.name(0)
        ))),
    }
}

/// Refuses ranks that were asked for another `what` than rank 0, which depends on the `files` that each host has: each would
/// find its own, and wait for others when some have theirs. Every rank calls it.
///
/// # Errors
/// [`Error::Invalid`] with the first such rank.
pub(crate) fn check_same_request(
    world: &World,
    [what, files]: [&str; 2],
    asked: String,
) -> Result<()> {
    let all = Shared::new(world, [asked])?;
    match all.other(0) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "{} was asked for another {what} than {}: start all ranks with the same flags, and copy the {files} to the same \
             path on each host",
            all.name(rank),
            all.name(0)
        ))),
    }
}

/// Texts of all ranks, which should be the same.
struct Shared<'a> {
    world: &'a World,
    all: Vec<Parcel>,
}

impl<'a> Shared<'a> {
    /// Every rank calls it.
    fn new<const N: usize>(world: &'a World, texts: [String; N]) -> Result<Self> {
        let own = Parcel {
            head: Vec::new(),
            bodies: texts.map(String::into_bytes).into(),
        };
        let all = world.share(own, None).map_err(Error::run)?;
        let all = Self { world, all };
        // Of a rank that has come to its end.
        match all.all.iter().position(|own| own.bodies.is_empty()) {
            Some(rank) => Err(Error::invalid(format!(
                "{} has nothing to do: start all ranks with the same flags, and copy the run's folder to the same path on each \
                 host",
                all.name(rank)
            ))),
            None => Ok(all),
        }
    }

    fn bytes(&self, rank: usize, text: usize) -> &[u8] {
        self.all[rank].bodies.get(text).map_or(&[], Vec::as_slice)
    }

    fn text(&self, rank: usize, text: usize) -> String {
        String::from_utf8_lossy(self.bytes(rank, text)).into_owned()
    }

    fn name(&self, rank: usize) -> String {
        format!("rank {rank} ({})", self.world.host(rank))
    }

    /// The first rank that has another text than rank 0.
    fn other(&self, text: usize) -> Option<usize> {
        (1..self.all.len()).find(|&rank| self.bytes(rank, text) != self.bytes(0, text))
    }
}

#[cfg(test)]
mod tests;
