//! This process among those of an MPI launcher: the first one speaks for all.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpipe_sched::Parcel;
use gpipe_train::{Launched, Launcher, Overrides, ranks};

use crate::args::{LaunchedArgs, has_flag};
use crate::fail::{Fail, Result};
use crate::output::silence;

type World = Arc<gpipe_sched::World>;

static LAUNCHED: OnceLock<Launched> = OnceLock::new();

/// Runs a command over the ranks of a launcher, if there is one.
pub fn over(args: &LaunchedArgs, command: impl FnOnce() -> Result<()>) -> Result<()> {
    let joined = gpipe_train::join_launcher(args.mpi.as_deref(), args.mpi_timeout);
    if let Some(launched) = joined.map_err(without_library)? {
        if launched.launcher.rank > 0 {
            silence(true);
        }
        // Called once.
        let _ = LAUNCHED.set(launched);
        // A panic is an error for the other ranks.
        let outcome = panic::catch_unwind(AssertUnwindSafe(command));
        return outcome.unwrap_or_else(|_| Err(Fail::run(anyhow::Error::msg("a panic"))));
    }
    command()
}

/// Names another mend for a missing library where the command has no `--mpi`.
fn without_library(error: gpipe_train::Error) -> Fail {
    const MEND: &str = "use --mpi PATH of";
    let said = gpipe_train::one_line(&error);
    match has_flag("--mpi") || !said.contains(MEND) {
        true => error.into(),
        false => Fail::invalid(said.replace(MEND, "add to LD_LIBRARY_PATH the folder of")),
    }
}

/// Runs a command that is the work of one process.
pub fn alone(command: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    match Launcher::of_environment() {
        // The first one's code counts: a launcher may end it when another fails before it has spoken.
        Some(launcher) if launcher.rank > 0 => Ok(()),
        Some(launcher) if launcher.ranks > 1 => Err(Fail::invalid(format!(
            "gpipe {command} runs in one process, and {} started {}: start it without the launcher",
            launcher.name, launcher.ranks
        ))),
        _ => run(),
    }
}

/// The ranks, if a launcher started this process as one of several.
pub fn world() -> Option<World> {
    LAUNCHED.get().map(|launched| launched.world.clone())
}

/// This process among those of a launcher, if there are several.
pub fn launched() -> Option<&'static Launched> {
    LAUNCHED.get()
}

/// Whether this process speaks: all that were started alone, and rank 0, or if that is lost the next one. One that has lost
/// itself does too: no other hears why.
pub fn speaks() -> bool {
    let Some(world) = world() else {
        // Before there is a world, or without one.
        return gpipe_train::is_first_rank();
    };
    let lost = world.lost();
    let first = match lost {
        Some(0) => 1,
        _ => 0,
    };
    world.rank() == first || lost == Some(world.rank())
}

/// Says which rank of the launcher has fewer cores than threads.
pub fn pinned(threads: usize) -> Option<String> {
    ranks::pinned(&LAUNCHED.get()?.ranks, Some(threads))
}

/// The configuration of one of the ranks.
pub fn lay(overrides: Overrides) -> Overrides {
    let Some(Launched {
        ranks, launcher, ..
    }) = LAUNCHED.get()
    else {
        return overrides;
    };
    overrides.on_ranks(ranks.len(), ranks::sharing(ranks, launcher.rank))
}

/// Ends with the other ranks: they get the failure of this one, which is reported before any of them ends.
pub fn end(result: Result<()>, verbose: bool) -> Result<()> {
    let Some(world) = world() else {
        if let Err(fail) = &result {
            // The launcher may end all as soon as this rank ends: rank 0 speaks first, and then who met a fault alone.
            if !speaks() {
                std::thread::sleep(Duration::from_secs(1));
            }
            fail.report(verbose);
        }
        return result;
    };
    let result = match result {
        Err(fail @ (Fail::Usage(_) | Fail::Run(_))) => {
            // That of another rank is known.
            if !world.is_over() {
                world.fail(&fail.line().unwrap_or_default(), fail.exit_code());
            }
            Err(match (fail, world.exit_code()) {
                (Fail::Run(error), Some(2)) => Fail::Usage(error),
                (fail, _) => fail,
            })
        }
        // Rank 0 may still write a checkpoint; if that fails, all fail.
        result => match world.share(Parcel::default(), None) {
            Ok(_) => result,
            Err(error) => result.and(Err(Fail::run(error))),
        },
    };
    if let (Err(fail), true) = (&result, speaks()) {
        silence(false);
        fail.report(verbose);
    }
    match (world.close(), result) {
        (Err(fault), Ok(())) => {
            silence(false);
            let fail = Fail::run(anyhow::Error::msg(fault));
            fail.report(verbose);
            Err(fail)
        }
        // All have come to their end: the code of the first one counts, which ends once the others are gone. Open MPI's launcher
        // ends what still runs when a process fails, and may hang if several do at once (openpmix/prrte, issue 1839).
        (Ok(()), Err(_)) if !speaks() => Ok(()),
        (Ok(()), Err(fail)) => {
            std::thread::sleep(Duration::from_millis(100));
            Err(fail)
        }
        (_, result) => result,
    }
}
