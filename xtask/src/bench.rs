//! Measurements in three families.

mod configuration;
mod criterion;
mod model;
mod peer;
mod report;
mod summary;
mod training;

use std::path::Path;

use xshell::{Shell, cmd};

use crate::flags::Bench;

/// Runs the families that were asked for.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    const FAMILIES: [&str; 3] = ["ops", "schedule", "training"];
    for family in &flags.family {
        anyhow::ensure!(
            FAMILIES.contains(&family.as_str()),
            "no family {family}: use ops, schedule or training"
        );
    }
    let asked =
        |family: &str| flags.family.is_empty() || flags.family.iter().any(|name| name == family);
    if asked("ops") {
        criterion::run(shell, root, "ops", &["gpipe-tensor"], flags.json)?;
    }
    if asked("schedule") {
        criterion::run(
            shell,
            root,
            "schedule",
            &["gpipe-sched", "gpipe-partition"],
            flags.json,
        )?;
        if !flags.json {
            for example in ["growth", "sleepers"] {
                cmd!(
                    shell,
                    "cargo run -q --release -p gpipe-sched --example {example}"
                )
                .run()?;
            }
        }
    }
    if asked("training") {
        training::run(shell, flags)?;
    }
    Ok(())
}
