//! Configurations and sources that ask for more than there is, with 512 MiB of address space:
//! refused in one line, and never by an abort.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{small, stderr};

/// Runs `gpipe` where the whole process may map 512 MiB at most, and for a minute at most.
fn confined(folder: &Path, arguments: &[&str]) -> Output {
    let program = assert_cmd::cargo::cargo_bin("gpipe");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v 524288; exec timeout 300 \"$0\" \"$@\""])
        .arg(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    command.output().expect("a shell")
}

/// Settings that no machine has room for, or that nobody meant.
fn settings() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut add = |texts: &[&str]| all.push(texts.iter().map(|&text| text.to_owned()).collect());
    let huge = [
        "1000000000",
        "2147483647",
        "4294967295",
        "9223372036854775807",
    ];
    for key in [
        "model.blocks",
        "model.width",
        "model.heads",
        "model.vocab",
        "model.context",
        "data.seq_len",
        "data.batch_size",
        "pipeline.stages",
        "pipeline.micro_batches",
        "pipeline.micro_batch_size",
        "pipeline.threads",
    ] {
        for value in huge {
            // A micro-batch may be larger than the batch: that is one micro-batch.
            if key != "pipeline.micro_batch_size" {
                add(&[&format!("{key}={value}")]);
            }
        }
    }
    for value in ["100000", "65536"] {
        add(&["model.blocks=10000", &format!("model.width={value}")]);
        add(&[
            &format!("model.width={value}"),
            &format!("model.vocab={value}"),
        ]);
        add(&[&format!("data.batch_size={value}"), "data.seq_len=4096"]);
        add(&[
            "model.heads=1",
            &format!("model.width={value}"),
            "data.seq_len=32768",
        ]);
    }
    add(&["model.width=4294967292", "model.heads=4"]);
    add(&["model.width=1000000", "model.blocks=1"]);
    add(&["model.name=gpt2", "data.batch_size=4096"]);
    add(&["model.name=gpt2", "model.blocks=4096"]);
    add(&["pipeline.devices=cpu*4294967295"]);
    add(&["pipeline.devices=cpu*100000,cpu*100000"]);
    add(&["pipeline.schedule=interleaved:4294967295"]);
    add(&["pipeline.schedule=looped-bfs:100000"]);
    add(&["pipeline.partition=18446744073709551615,1,1,1"]);
    add(&["data.batch_size=1000000", "pipeline.micro_batches=1000000"]);
    add(&[
        "run.steps=9223372036854775807",
        "run.trace_steps=9223372036854775807",
        "model.width=65536",
    ]);
    add(&["data.source=/dev/zero"]);
    add(&["data.source=huge"]);
    add(&["data.source=pipe"]);
    add(&["data.source=loop"]);
    add(&["data.source=dangling"]);
    add(&["data.source=/proc/kcore"]);
    all
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let huge = fs::File::create(place("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let pipe = Command::new("mkfifo").arg(place("pipe")).status().unwrap();
    assert!(pipe.success());
    std::os::unix::fs::symlink("loop", place("loop")).unwrap();
    std::os::unix::fs::symlink("nowhere", place("dangling")).unwrap();
    let settings = settings();
    assert!(settings.len() >= 60, "{}", settings.len());
    // In `cargo test` a few of every kind; the exam runs all.
    let stride = if std::env::var_os("GPIPE_EXAM").is_some() {
        1
    } else {
        6
    };
    let mut tried = 0;
    for texts in settings.iter().step_by(stride) {
        let mut arguments = vec![
            "train",
            "--quiet",
            "--steps",
            "1",
            "--threads",
            "2",
            "--out",
            "run",
        ];
        arguments.extend(texts.iter().flat_map(|text| ["--set", text.as_str()]));
        let output = confined(folder.path(), &arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{texts:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{texts:?}: {said}");
        assert!(!place("run").exists(), "{texts:?} left a folder");
        tried += 1;
    }
    println!("exam P6 {tried}/{tried}");
}

/// Layers that there is no room for are not measured.
#[test]
fn a_profile_is_measured_where_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [
        &["plan", "--profile"][..],
        &["plan", "--auto", "--profile"],
        &["train", "--auto", "--profile"],
    ] {
        let model = [
            "--set",
            "model.width=2048",
            "--set",
            "model.heads=8",
            "--batch-size",
            "4",
        ];
        let output = confined(folder.path(), &[flags, &model].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("--profile needs") && said.contains("leave it out"),
            "{said}"
        );
        assert!(!folder.path().join("runs").exists());
    }
}

/// A text of bytes takes a byte of memory for each of its own, and what does not fit is named.
#[test]
fn a_text_is_read_where_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::File::create(folder.path().join("text")).unwrap();
    let train = [
        "train", "--quiet", "--steps", "1", "--out", "run", "--keep", "0",
    ];
    let arguments = [&train, super::SMALL, &["--data", "text"]].concat();
    // The long one would not fit at five bytes for each of its own; the short one is read in moments.
    let fits = match std::env::var_os("GPIPE_EXAM") {
        Some(_) => 100,
        None => 20,
    };
    for (mebibytes, code) in [(600, 2), (fits, 0)] {
        text.set_len(mebibytes << 20).unwrap();
        let output = confined(folder.path(), &arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("name a shorter text"), code == 2, "{said}");
    }
    println!("exam P6 2/2");
}

/// Opening a pipe would block until its other end is opened: nothing opens one.
#[test]
fn a_pipe_in_a_runs_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let train = ["--steps", "1", "--out", "run", "-q"];
    assert!(small(folder.path(), "train", &train).status.success());
    let resume = ["train", "--resume", "run", "--steps", "2"];
    for (name, arguments) in [
        ("events.jsonl", &["report", "run"][..]),
        ("timeline.json", &["report", "run"]),
        (".lock", &resume),
    ] {
        let path = folder.path().join("run").join(name);
        fs::remove_file(&path).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let output = confined(folder.path(), arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("is no regular file: remove it"), "{said}");
        fs::remove_file(&path).unwrap();
    }
}

/// The same confinement stops what does allocate: it is not idle.
#[test]
fn the_confinement_holds() {
    let folder = tempfile::tempdir().unwrap();
    let run = |bytes: &str| {
        let script =
            format!("ulimit -v 524288; exec dd if=/dev/zero of=/dev/null count=1 bs={bytes} 2>&1");
        Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(run("1M") && !run("1G"));
    // And what fits runs.
    let output = confined(
        folder.path(),
        &[
            &["train", "--quiet", "--steps", "1", "--out", "run"],
            super::SMALL,
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    println!("exam P6 teeth 2/2");
}
