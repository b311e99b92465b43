//! Signals: the step is finished and saved; a second Ctrl-C or SIGTERM quits at once.

#[path = "../../common/ignored_signals.rs"]
mod ignored_signals;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::super::{objects, parse, stderr};
use super::{TINY, code, of_kind, results, resume};

/// A run that would take long, after its first step.
fn start(folder: &Path, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    ignored_signals::are_not_inherited();
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
    for signal in ["-INT", "-TERM", "-HUP", "-USR1", "-XCPU"] {
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
    println!("exam L2 5/5");
}

/// A run whose steps take long enough for two signals to come during one.
fn slow(folder: &Path, samples: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let slow = ["--set", "model.width=256", "--seq-len", "256"];
    let rest = [
        "--batch-size",
        samples,
        "--steps",
        "1000000",
        "--out",
        "run",
    ];
    start(
        folder,
        &[&slow[..], &rest, &["--keep", "1", "--save-every", "0"]].concat(),
    )
}

#[test]
fn a_second_signal_quits_at_once() {
    // A step takes some seconds; a first signal that meets the end of one saves and ends the run, and tests nothing.
    let has_quit = (0..5).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, lines) = slow(folder.path(), "320");
        thread::sleep(Duration::from_millis(200));
        send(&child, "-INT");
        let status = loop {
            // The first of these may come so soon that it counts as part of the other.
            thread::sleep(Duration::from_millis(300));
            send(&child, "-TERM");
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        assert_eq!(status.code(), Some(130));
        let saved = lines.lines().any(|line| line.unwrap().contains("\"save\""));
        !saved && !folder.path().join("run/checkpoints/latest").exists()
    });
    assert!(has_quit);
    println!("exam L2 1/1");
}

/// As `timeout` does it: to the program, and to its group.
#[test]
fn two_signals_at_once_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lines) = slow(folder.path(), "8");
    let id = child.id();
    let both = format!("kill -TERM {id}; kill -TERM {id}");
    assert!(
        Command::new("sh")
            .args(["-c", &both])
            .status()
            .unwrap()
            .success()
    );
    let last = lines.lines().map(Result::unwrap).last().unwrap();
    assert!(last.contains("\"save\""), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    println!("exam L2 1/1");
}

#[test]
fn an_evaluation_ends_when_a_stop_is_requested() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text: String = (0..300_000).map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.join("long.txt"), text).unwrap();
    let data = ["--data", "long.txt", "--eval-every", "1"];
    let run = ["--steps", "9", "--save-every", "0", "--out", "run"];
    // The evaluation after the first step takes seconds.
    let (mut child, lines) = start(folder, &[&data[..], &run].concat());
    send(&child, "-TERM");
    let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let [saved] = &*parse(&rest.join("\n")) else {
        panic!("{rest:?}");
    };
    assert_eq!(
        (&saved["kind"], &saved["step"]),
        (&"save".into(), &1.into())
    );
    let log = std::fs::read_to_string(folder.join("run/log.txt")).unwrap();
    assert!(log.contains("step 1  not evaluated"), "{log}");
    println!("exam L2 1/1");
}

#[test]
fn two_hang_ups_before_a_sigterm_still_save() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lines) = slow(folder.path(), "8");
    for signal in ["-HUP", "-HUP", "-USR1", "-TERM"] {
        send(&child, signal);
    }
    let last = lines.lines().map(Result::unwrap).last().unwrap();
    assert!(last.contains("\"save\""), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    println!("exam L2 1/1");
}

#[cfg(target_os = "linux")]
mod linux {
    //! What Linux lets a test see and set.

    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    use super::super::bits;
    use super::*;

    #[test]
    fn a_hang_up_that_is_ignored_from_the_start_stays_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut command = Command::new("sh");
        let script = "trap '' HUP; exec \"$@\"";
        let words = ["-c", script, "sh", env!("CARGO_BIN_EXE_gpipe")];
        command.current_dir(folder).args(words).args(TINY);
        command.args(["--steps", "200", "--save-every", "0", "--out", "run"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("\"step\":1,"));
        send(&child, "-HUP");
        let last = lines.map(Result::unwrap).last().unwrap();
        assert!(last.contains("\"step\":200,"), "{last}");
        assert_eq!(child.wait().unwrap().code(), Some(0));
        println!("exam L2 1/1");
    }

    #[test]
    fn a_limit_on_files_is_an_error_that_leaves_the_last_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let run = ["--steps", "1000000", "--save-every", "1", "--out", "run"];
        let (child, mut lines) = start(folder, &run);
        let mut line = String::new();
        while !line.contains("\"save\"") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
        }
        let room = Rlimit {
            current: Some(4096),
            maximum: Some(4096),
        };
        prlimit(Some(Pid::from_child(&child)), Resource::Fsize, room).unwrap();
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        let error = said.lines().last().unwrap();
        for part in [
            "error: the checkpoint of step ",
            ": File too large (os error 27): raise the limit on the size of files (ulimit -f)",
            "; the newest checkpoint is run/checkpoints/step-",
            ": gpipe train --resume run continues from it",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(
            rest.last().unwrap().contains("\"kind\":\"error\""),
            "{rest:?}"
        );
        let names = std::fs::read_dir(folder.join("run/checkpoints")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.collect();
        assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
        let newest = names.iter().filter_map(|name| name.strip_prefix("step-"));
        let newest: u64 = newest.max().unwrap().parse().unwrap();
        let went_on = resume(folder, &["run", "--steps", &(newest + 2).to_string()]);
        let went_on = objects(&went_on);
        assert_eq!(of_kind(&went_on, "resume")[0]["step"], newest);
        assert!(!bits(folder, "run", newest + 2)[0].is_empty());
        println!("exam L2 1/1");
    }
}
