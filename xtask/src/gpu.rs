//! What needs a GPU: checks and measurements, here or packed for a host with a driver and no Rust.

mod archive;
mod checks;
pub mod programs;
mod results;
pub mod train;

use std::path::Path;

use anyhow::Context as _;
use xshell::Shell;

use crate::bench::{self, cuda::Wanted};
use crate::flags::Gpu;
use programs::Programs;
use results::Results;

/// Packs the programs, or runs the checks.
pub fn run(shell: &Shell, root: &Path, flags: &Gpu) -> anyhow::Result<()> {
    if flags.archive || flags.check {
        return archive::run(shell, root, flags.check);
    }
    check(shell, flags)
}

/// Runs every check and every measurement, and writes what came out.
///
/// # Errors
/// [`programs::Missing`] without a GPU; that a check failed, after all of them.
pub fn check(shell: &Shell, flags: &Gpu) -> anyhow::Result<()> {
    let programs = match &flags.programs {
        Some(folder) => Programs::in_folder(&std::path::absolute(folder)?),
        None => Programs::build(shell)?,
    };
    let devices = programs.devices()?;
    let mut results = Results::begin(&devices);
    checks::conformance(&programs, &mut results)?;
    checks::parity(&programs, flags.small, &mut results)?;
    checks::rehearsals(&programs, flags.small, &mut results)?;
    checks::sanitizer(&programs, &mut results)?;
    let wanted = Wanted {
        small: flags.small,
        markdown: true,
        peers: flags.peers.clone(),
        python: flags.python.clone(),
        ..Wanted::default()
    };
    results.text("Speed", &bench::cuda::measure(&programs, &wanted)?);
    let out = flags.out.clone().unwrap_or_else(|| "results.md".into());
    std::fs::write(&out, results.written())
        .with_context(|| format!("writing {}", out.display()))?;
    println!("{}", out.display());
    results.verdict()
}
