//! The real binary, as a user or a script runs it.

mod adapters;
mod bad_input;
mod before;
#[cfg(feature = "tokenizers")]
mod conversations;
mod data;
#[cfg(feature = "digits")]
mod digits;
mod escapes;
mod events;
mod folders;
mod generate;
mod hostile;
#[cfg(feature = "tokenizers")]
mod hostile_tokenizers;
#[cfg(feature = "digits")]
mod images;
mod instruction_set;
#[path = "../../../gpipe-mpi/tests/common/launcher.rs"]
mod launcher;
mod llama;
mod long_lines;
mod masks;
mod mends;
mod missing_gpus;
mod models;
mod parity;
mod pictures;
mod plan;
mod predictions;
mod ranks;
mod recommended;
mod reference;
mod report;
mod resume;
mod save_cost;
mod seq2seq;
mod tables;
mod tensorboard;
#[path = "../common/tensors.rs"]
mod tensors;
mod timelines;
#[cfg(feature = "tokenizers")]
mod tokens;
mod train;
mod verify;
mod wrong_lines;

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// A model and a batch that train in milliseconds.
const SMALL: &[&str] = &[
    "--set",
    "model.width=32",
    "--set",
    "model.blocks=3",
    "--seq-len",
    "16",
    "--batch-size",
    "8",
    "--threads",
    "2",
];

/// Runs `gpipe` in a folder.
fn gpipe(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("gpipe").expect("the binary was built");
    command
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command.args(arguments).output().expect("the binary runs")
}

/// Runs `gpipe COMMAND` on the small model.
fn small(folder: &Path, command: &str, arguments: &[&str]) -> Output {
    gpipe(folder, &[&[command], SMALL, arguments].concat())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// The objects of a run that must have gone well.
fn objects(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    parse(&stdout(output))
}

fn parse(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect()
}

/// Fails unless the object has exactly these keys. (Their order is pinned where they are written.)
fn assert_keys(object: &Value, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let found: Vec<&str> = object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(found, expected, "{object}");
}
