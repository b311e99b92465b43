//! This process among those of an MPI launcher: the first one speaks for all.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use gpipe_sched::Parcel;
use gpipe_train::Overrides;

use crate::fail::{Fail, Result};

type World = Arc<gpipe_sched::World>;

static WORLD: OnceLock<World> = OnceLock::new();

/// Joins the ranks of a launcher, if there is one.
pub fn join(library: Option<&Path>) -> Result<()> {
    if let Some(world) = gpipe_train::join_launcher(library)? {
        // Called once.
        let _ = WORLD.set(world);
    }
    Ok(())
}

/// The ranks, if a launcher started this process as one of several.
pub fn world() -> Option<World> {
    WORLD.get().cloned()
}

/// Whether this process speaks: all that were started alone, and rank 0.
pub fn speaks() -> bool {
    WORLD.get().is_none_or(|world| world.rank() == 0)
}

/// The configuration of one of the ranks.
pub fn lay(overrides: Overrides) -> Overrides {
    let Some(world) = WORLD.get() else {
        return overrides;
    };
    let own = world.host(world.rank());
    let here = (0..world.ranks()).filter(|&rank| world.host(rank) == own);
    overrides.on_ranks(world.ranks(), here.count())
}

/// Ends with the other ranks: a failure here ends them too.
pub fn end(result: Result<()>) -> Result<()> {
    let Some(world) = WORLD.get() else {
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
