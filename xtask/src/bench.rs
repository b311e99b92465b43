//! Measurements in families, one of predictions beside published figures, and one experiment.

mod baseline;
mod calm;
mod configuration;
mod criterion;
mod distance;
mod images;
mod llama;
mod measured;
mod model;
mod peak;
mod peer;
mod published;
mod ranks;
mod report;
mod runs;
mod schedule;
mod sizes;
pub mod summary;
mod sweep;
pub mod table;
mod training;
mod turns;
mod tutorial;

use std::path::Path;

use xshell::Shell;

use crate::flags::Bench;

/// Runs the families that were asked for.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    const FAMILIES: [&str; 10] = [
        "ops",
        "schedule",
        "training",
        "sizes",
        "images",
        "llama",
        "plan",
        "published",
        "tutorial",
        "ranks",
    ];
    for family in &flags.family {
        anyhow::ensure!(
            FAMILIES.contains(&family.as_str()),
            "no family {family}: use ops, schedule, training, sizes, images, llama, plan, published, tutorial or ranks"
        );
    }
    let asked =
        |family: &str| flags.family.is_empty() || flags.family.iter().any(|name| name == family);
    anyhow::ensure!(
        flags.baseline.is_none() || asked("training"),
        "--baseline is compared with training alone: ask for training too"
    );
    if asked("ops") {
        let crates = ["gpipe-tensor", "gpipe-sched", "gpipe-partition"];
        criterion::run(shell, root, "ops", &crates, flags.json)?;
    }
    if asked("schedule") {
        schedule::run(shell, flags)?;
    }
    if asked("training") {
        training::run(shell, root, flags)?;
    }
    if asked("sizes") {
        sizes::run(shell, flags)?;
    }
    if asked("images") {
        images::run(shell, root, flags)?;
    }
    if asked("llama") {
        llama::run(shell, root, flags)?;
    }
    if asked("plan") {
        sweep::run(shell, root, flags)?;
    }
    if asked("published") {
        published::run(shell, root, flags)?;
    }
    if asked("tutorial") {
        tutorial::run(shell, root, flags)?;
    }
    // Only where it was named: most machines have no MPI.
    if flags.family.iter().any(|name| name == "ranks") {
        ranks::run(shell, root, flags)?;
    }
    Ok(())
}
