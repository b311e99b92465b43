//! Ctrl-C and SIGTERM: the step is finished and saved; a second one quits at once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::super::{objects, parse, stderr};
use super::{TINY, code, of_kind, results, resume};

/// A run that would take long, after its first step.
fn start(folder: &Path, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
    command.current_dir(folder).args(TINY).args(arguments);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("\"step\":1,"), "{line}");
    (child, lines)
}

fn send(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_signal_ends_the_step_saves_and_exits_with_130() {
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let arguments = ["--steps", "1000000", "--save-every", "1", "--out", "run"];
        let (mut child, mut lines) = start(folder, &arguments);
        let mut line = String::new();
        while !line.contains("\"save\"") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
        }
        // While it runs, nobody else may write its folder.
        let second = resume(folder, &["run"]);
        assert_eq!(code(&second), 2);
        assert!(
            stderr(&second).contains("another gpipe is at work"),
            "{}",
            stderr(&second)
        );

        send(&child, signal);
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let rest = parse(&rest.join("\n"));
        let last = of_kind(&rest, "step").last().unwrap()["step"].clone();
        let saved = rest.last().unwrap();
        assert_eq!((&saved["kind"], &saved["step"]), (&"save".into(), &last));
        let steps = (last.as_u64().unwrap() + 2).to_string();
        let went_on = objects(&resume(folder, &["run", "--steps", &steps]));
        assert_eq!(of_kind(&went_on, "resume")[0]["step"], last);
        assert_eq!(results(&went_on).len(), 2);
    }
}

#[test]
fn a_second_signal_quits_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // A step that takes long enough for two signals to come during it.
    let slow = [
        "--set",
        "model.width=256",
        "--seq-len",
        "256",
        "--batch-size",
        "8",
    ];
    let rest = [
        "--steps",
        "1000000",
        "--out",
        "run",
        "--keep",
        "1",
        "--save-every",
        "0",
    ];
    let (mut child, lines) = start(folder.path(), &[&slow[..], &rest].concat());
    send(&child, "-INT");
    send(&child, "-TERM");
    let status = child.wait().unwrap();
    let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
    assert_eq!(status.code(), Some(130));
    assert!(
        !rest.iter().any(|line| line.contains("\"save\"")),
        "{rest:?}"
    );
    assert!(!folder.path().join("run/checkpoints/latest").exists());
}
