//! This process among those of an MPI launcher: the first one speaks for all.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use gpipe_sched::Parcel;
use gpipe_train::{Launched, Launcher, Overrides, ranks};

use crate::fail::{Fail, Result};
use crate::output::silence;

type World = Arc<gpipe_sched::World>;

static LAUNCHED: OnceLock<Launched> = OnceLock::new();

/// Runs a command over the ranks of a launcher, if there is one.
pub fn over(library: Option<&Path>, command: impl FnOnce() -> Result<()>) -> Result<()> {
    if let Some(launched) = gpipe_train::join_launcher(library)? {
        if launched.launcher.rank > 0 {
            silence();
        }
        // Called once.
        let _ = LAUNCHED.set(launched);
    }
    end(command())
}

/// Runs a command that is the work of one process.
pub fn alone(command: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    match Launcher::of_environment() {
        Some(launcher) if launcher.ranks > 1 => {
            if launcher.rank > 0 {
                silence();
            }
            Err(Fail::invalid(format!(
                "gpipe {command} runs in one process, and {} started {}: start it without",
                launcher.name, launcher.ranks
            )))
        }
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

/// Whether this process speaks: all that were started alone, and rank 0.
pub fn speaks() -> bool {
    LAUNCHED
        .get()
        .is_none_or(|launched| launched.launcher.rank == 0)
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

/// Ends with the other ranks: a failure here ends them too.
fn end(result: Result<()>) -> Result<()> {
    let Some(world) = world() else {
        return result;
    };
    let told = match &result {
        Err(fail @ (Fail::Usage(_) | Fail::Run(_))) => {
            world.fail(&fail.line().unwrap_or_default());
            Ok(())
        }
        // Rank 0 may still write a checkpoint; if that fails, all fail.
        _ => world.share(Parcel::default(), None).map(drop),
    };
    let closed = world.close();
    result?;
    told.map_err(Fail::run)?;
    closed.map_err(|fault| Fail::run(anyhow::Error::msg(fault)))
}
