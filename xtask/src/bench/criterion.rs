//! The families that criterion measures inside the crates.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use crate::tree::entries;

/// Runs the benches of some crates; with `json`, criterion's own output goes to stderr and one
/// object a bench to stdout.
pub fn run(
    shell: &Shell,
    root: &Path,
    family: &str,
    crates: &[&str],
    json: bool,
) -> anyhow::Result<()> {
    let packages: Vec<&str> = crates.iter().flat_map(|name| ["-p", name]).collect();
    // Libraries have no benches of their own in src: `--benches` would run their tests.
    let command = cmd!(shell, "cargo bench {packages...} --bench *");
    if !json {
        return Ok(command.run()?);
    }
    let start = SystemTime::now();
    eprint!("{}", command.read()?);
    let metadata: Value =
        serde_json::from_str(&cmd!(shell, "cargo metadata --no-deps --format-version 1").read()?)?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo metadata names no target folder")?;
    let mut results = Vec::new();
    collect(&root.join(target).join("criterion"), start, &mut results)?;
    for (name, estimates) in results {
        let seconds = |of: &Value| of.as_f64().map(|nanoseconds| nanoseconds / 1e9);
        let median = &estimates["median"];
        let line = json!({
            "kind": "bench",
            "family": family,
            "name": name,
            "median_seconds": seconds(&median["point_estimate"]),
            "low_seconds": seconds(&median["confidence_interval"]["lower_bound"]),
            "high_seconds": seconds(&median["confidence_interval"]["upper_bound"]),
        });
        println!("{line}");
    }
    Ok(())
}

/// The names and estimates that criterion wrote under a folder since a moment.
fn collect(
    folder: &Path,
    since: SystemTime,
    results: &mut Vec<(Value, Value)>,
) -> anyhow::Result<()> {
    for path in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let estimates = path.join("estimates.json");
        let is_new = path.ends_with("new")
            && fs::metadata(&estimates)
                .is_ok_and(|file| file.modified().is_ok_and(|time| time >= since));
        if is_new {
            let read = |path: &Path| -> anyhow::Result<Value> {
                Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
            };
            let mut benchmark = read(&path.join("benchmark.json"))?;
            results.push((benchmark["full_id"].take(), read(&estimates)?));
        } else {
            collect(&path, since, results)?;
        }
    }
    Ok(())
}
