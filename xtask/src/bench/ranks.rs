//! Ranks over MPI, under the launchers of `GPIPE_MPIRUN`: (a) processes beside threads, (b) replicas beside PyTorch's,
//! (c) messages beside those of MPI's own calls.

mod messages;
mod processes;
mod replicas;

use std::path::Path;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use crate::flags::Bench;

/// Measures the parts that were asked for.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    anyhow::ensure!(
        flags.rounds != Some(0) && flags.steps != Some(0),
        "rounds and steps must be at least 1"
    );
    let parts: Vec<&str> = flags
        .parts
        .as_deref()
        .unwrap_or("a,b,c")
        .split(',')
        .collect();
    if let Some(other) = parts.iter().find(|part| !["a", "b", "c"].contains(part)) {
        anyhow::bail!("no part {other} of ranks: use a, b or c");
    }
    let launchers = std::env::var("GPIPE_MPIRUN").context(
        "no MPI: name launchers, as GPIPE_MPIRUN=/path/to/mpirun, several parted by `:`",
    )?;
    let launchers: Vec<&str> = launchers.split(':').collect();
    cmd!(shell, "cargo build --release").run()?;
    if parts.contains(&"a") {
        processes::run(shell, flags, &launchers)?;
    }
    if parts.contains(&"b") {
        replicas::run(shell, root, flags, &launchers)?;
    }
    if parts.contains(&"c") {
        messages::run(shell, flags, &launchers)?;
    }
    Ok(())
}
