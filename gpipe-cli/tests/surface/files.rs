//! The files that are left behind: their names, and the keys and tensors in them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::shape::{Shape, safetensors, tags};
use super::{gpipe, stdout, tiny};

/// All files below a folder, with slashes.
fn below(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            below(&entry.path(), &format!("{name}/"), names);
        } else {
            names.insert(name);
        }
    }
}

/// The structure of one file: lines that say what is in it.
fn described(name: &str, bytes: &[u8]) -> String {
    let text = || String::from_utf8(bytes.to_vec()).expect("text");
    if name.ends_with(".safetensors") {
        let (header, _) = safetensors(bytes);
        let mut lines = String::new();
        for (name, tensor) in header.as_object().expect("an object") {
            let line = match tensor.get("shape") {
                Some(shape) => format!("{} {shape}", tensor["dtype"]),
                None => tensor.to_string(),
            };
            writeln!(lines, "  {name}: {line}").unwrap();
        }
        lines
    } else if name.ends_with(".json") {
        let mut value: Value = serde_json::from_slice(bytes).expect("JSON");
        let mut shape = Shape::default();
        let mut names = Vec::new();
        // Of a profile: a map by the kinds of layers.
        if let Some(Value::Object(kinds)) = value.get_mut("kinds").map(Value::take) {
            for (name, measured) in kinds {
                shape.add(&serde_json::json!({ "kinds": { "KIND": measured } }));
                names.push(name);
            }
            value.as_object_mut().expect("an object").remove("kinds");
        }
        shape.add(&value);
        let mut lines = shape.lines();
        for name in names {
            writeln!(lines, "  KIND = {name}").unwrap();
        }
        for key in ["format", "model_type", "architectures"] {
            if let Some(value) = value.get(key) {
                writeln!(lines, "  {key} = {value}").unwrap();
            }
        }
        lines
    } else if name.starts_with("events.out.tfevents.") {
        tags(bytes).iter().map(|tag| format!("  {tag}\n")).collect()
    } else if name.ends_with(".toml") {
        // Values are in the snapshot of the keys.
        let keys = text();
        let keys = keys
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        keys.map(|line| format!("  {}\n", line.split(" = ").next().unwrap_or_default()))
            .collect()
    } else if ["/latest", "/best"].iter().any(|end| name.ends_with(end)) {
        format!("  {:?}\n", text())
    } else {
        String::new()
    }
}

/// The structure of all files below a folder; a run's files have the same structure in each step.
fn structure(folder: &Path) -> String {
    let mut names = BTreeSet::new();
    below(folder, "", &mut names);
    let mut lines = String::new();
    for name in names {
        let shown = match name.split_once("tfevents.") {
            Some((start, end)) => {
                let digits = end.trim_start_matches(|digit: char| digit.is_ascii_digit());
                format!("{start}tfevents.SECONDS{digits}")
            }
            None => name.clone(),
        };
        let bytes = fs::read(folder.join(&name)).unwrap();
        write!(lines, "{shown}\n{}", described(&name, &bytes)).unwrap();
    }
    lines
}

#[test]
fn a_gpts_run_has_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let train = ["--steps", "2", "--eval-every", "2", "--out", "run", "-q"];
    stdout(&tiny(folder.path(), "train", &train));
    stdout(&gpipe(folder.path(), &["report", "run"]));
    // Other stages: the timelines of the steps before are set aside.
    let resume = [
        "train", "--resume", "run", "--steps", "4", "--stages", "1", "-q",
    ];
    stdout(&gpipe(folder.path(), &resume));
    let run = folder.path().join("run");
    fs::remove_dir_all(run.join("checkpoints/step-00000002")).unwrap();
    insta::assert_snapshot!(structure(&run));
}

#[test]
fn the_head_of_a_gpt_that_is_not_tied_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let train = [
        "--steps",
        "1",
        "--set",
        "model.tied=false",
        "--out",
        "run",
        "-q",
    ];
    // With a budget a stage's limit is known.
    let budget = ["--remat", "budget:2MiB"];
    stdout(&tiny(
        folder.path(),
        "train",
        &[&train[..], &budget].concat(),
    ));
    let run = folder.path().join("run");
    let timeline = fs::read(run.join("timeline.json")).unwrap();
    let timeline = described("timeline.json", &timeline);
    let limit = timeline.lines().filter(|line| line.contains(".limit"));
    let limit: Vec<&str> = limit.collect();
    let saved = structure(&run.join("checkpoints/step-00000001"));
    insta::assert_snapshot!(format!("{saved}\n# timeline.json\n{}", limit.join("\n")));
}

#[cfg(feature = "digits")]
#[test]
fn a_perceptrons_run_has_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let train = [
        "train",
        "--model",
        "mlp",
        "--set",
        "model.hidden=8,16",
        "--stages",
        "2",
        "--steps",
        "1",
        "--eval-every",
        "1",
        "--trace-steps",
        "0",
        "--threads",
        "2",
        "--out",
        "run",
        "-q",
    ];
    stdout(&gpipe(folder.path(), &train));
    insta::assert_snapshot!(structure(&folder.path().join("run")));
}

#[test]
fn other_commands_write_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let plan = [
        "plan",
        "--costs",
        "1,2,3",
        "--stages",
        "2",
        "--micro-batches",
        "3",
        "--schedule",
        "zb-h1",
        "--csv",
        "table.csv",
    ];
    stdout(&gpipe(folder.path(), &plan));
    let table = fs::read_to_string(folder.path().join("table.csv")).unwrap();
    stdout(&tiny(folder.path(), "plan", &["--profile", "-q"]));
    stdout(&gpipe(folder.path(), &["generate", "man", "man"]));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        stdout(&gpipe(
            folder.path(),
            &["generate", "completions", shell, "completions"],
        ));
    }
    insta::assert_snapshot!(format!(
        "{}\n# table.csv\n{table}",
        structure(folder.path())
    ));
}
