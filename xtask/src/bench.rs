//! Measurements in four families.

mod baseline;
mod configuration;
mod criterion;
mod model;
mod peer;
mod report;
mod schedule;
mod summary;
mod sweep;
mod table;
mod training;

use std::path::Path;

use xshell::Shell;

use crate::flags::Bench;

/// Runs the families that were asked for.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    const FAMILIES: [&str; 4] = ["ops", "schedule", "training", "plan"];
    for family in &flags.family {
        anyhow::ensure!(
            FAMILIES.contains(&family.as_str()),
            "no family {family}: use ops, schedule, training or plan"
        );
    }
    let asked =
        |family: &str| flags.family.is_empty() || flags.family.iter().any(|name| name == family);
    if asked("ops") {
        let crates = ["gpipe-tensor", "gpipe-sched", "gpipe-partition"];
        criterion::run(shell, root, "ops", &crates, flags.json)?;
    }
    if asked("schedule") {
        schedule::run(shell, flags)?;
    }
    if asked("training") {
        training::run(shell, flags)?;
    }
    if asked("plan") {
        sweep::run(shell, root, flags)?;
    }
    Ok(())
}
