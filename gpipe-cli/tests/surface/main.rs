//! The public surface: what users and scripts rely on, pinned as structure, not as sentences.
//!
//! Flags, keys of the configuration, keys and types of JSON, names of files and what is in them,
//! TensorBoard tags and exit codes are compared with the snapshots in `snapshots/`. A snapshot
//! changes only where the surface is meant to change; then
//!
//! ```text
//! INSTA_UPDATE=always cargo test -p gpipe-cli --test surface
//! ```
//!
//! writes it anew, and the difference belongs in the commit. [`saved`] resumes runs that the commit
//! 0e2bb26 has saved.

mod codes;
mod files;
mod flags;
#[cfg(unix)]
#[path = "../common/ignored_signals.rs"]
mod ignored_signals;
#[cfg(target_os = "linux")]
mod json;
mod keys;
mod saved;
mod shape;

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// A model whose steps take a millisecond.
const TINY: &[&str] = &[
    "--set",
    "model.width=16",
    "--set",
    "model.blocks=1",
    "--set",
    "model.heads=2",
    "--seq-len",
    "8",
    "--batch-size",
    "4",
    "--micro-batches",
    "4",
    "--stages",
    "2",
    "--threads",
    "2",
];

/// Runs `gpipe` in a folder.
fn gpipe(folder: &Path, arguments: &[&str]) -> Output {
    run(&assert_cmd::cargo::cargo_bin("gpipe"), folder, arguments)
}

/// Runs a binary in a folder.
fn run(program: &Path, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command.args(arguments).output().expect("the binary runs")
}

/// Runs `gpipe COMMAND` on the tiny model.
fn tiny(folder: &Path, command: &str, arguments: &[&str]) -> Output {
    gpipe(folder, &[&[command], TINY, arguments].concat())
}

/// What a run printed that must have gone well.
fn stdout(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// One object a line.
fn parse(lines: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).expect("one object a line");
    lines.lines().map(object).collect()
}
