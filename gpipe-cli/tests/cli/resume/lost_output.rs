//! A stderr or stdout that is full, closed or gone: no command needs the first, and a run that loses
//! the second saves before it ends.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::super::{SMALL, objects, parse, stderr, stdout};
use super::{TINY, code, of_kind, resume};

/// Ways to lose a stream.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// Every write fails: no space left.
    Full,
    /// The pipe has no reader.
    Pipe,
    /// The terminal is gone: an input/output error.
    Terminal,
}

impl Lost {
    const ALL: [Self; 3] = [Self::Full, Self::Pipe, Self::Terminal];

    fn stream(self) -> Stdio {
        match self {
            Self::Full => {
                let full = OpenOptions::new().write(true).open("/dev/full");
                full.unwrap().into()
            }
            Self::Pipe => std::io::pipe().unwrap().1.into(),
            Self::Terminal => {
                let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
                grantpt(&terminal).unwrap();
                unlockpt(&terminal).unwrap();
                let name = ptsname(&terminal, Vec::new()).unwrap();
                let mut options = File::options();
                let stream = options.read(true).write(true).open(name.to_str().unwrap());
                stream.unwrap().into()
            }
        }
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
    command.current_dir(folder).args(arguments);
    command
}

#[test]
fn a_lost_stderr_changes_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let with = |command: &'static str, more: &[&'static str]| [&[command], SMALL, more].concat();
    let commands = [
        (
            0,
            with(
                "train",
                &["--steps", "3", "--out", "run", "--overwrite", "-v"],
            ),
        ),
        (0, with("verify", &["--steps", "1"])),
        (0, with("plan", &["--memory", "1GiB"])),
        (0, vec!["plan", "--costs", "1,2,3", "--stages", "2"]),
        (0, vec!["eval", "run"]),
        (0, vec!["sample", "run", "--tokens", "2"]),
        (0, vec!["report", "run"]),
        (0, vec!["train", "--resume", "run"]),
        (2, vec!["sample", "missing"]),
        (2, vec!["plan", "--costs", "1,-2", "-v"]),
        (2, vec!["trian"]),
        (2, vec![]),
    ];
    let mut tried = 0;
    for (expected, arguments) in &commands {
        for lost in Lost::ALL {
            let mut command = command(folder, arguments);
            let output = command.stderr(lost.stream()).output().unwrap();
            assert_eq!(code(&output), *expected, "{lost:?} {arguments:?}");
            if arguments.first() == Some(&"train") {
                assert!(folder.join("run/checkpoints/step-00000003").is_dir());
            }
            tried += 1;
        }
    }
    let log = fs::read_to_string(folder.join("run/log.txt")).unwrap();
    assert!(log.contains("step 3/3"), "{log}");
    println!("exam L1 {tried}/{tried}");
}

#[test]
fn a_run_that_loses_stdout_saves_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for lost in Lost::ALL {
        let run = ["--steps", "1000000", "--out", "run", "--overwrite"];
        let mut command = command(folder, &[TINY, &run].concat());
        let output = command.stdout(lost.stream()).output().unwrap();
        assert_eq!(code(&output), 1, "{lost:?}");
        let said = stderr(&output);
        let expected = "; saved after step 1: gpipe train --resume run continues\n";
        assert!(
            said.starts_with("error: cannot write to stdout: "),
            "{said}"
        );
        assert!(said.ends_with(expected), "{said}");
        let went_on = objects(&resume(folder, &["run", "--steps", "3"]));
        assert_eq!(of_kind(&went_on, "resume")[0]["step"], 1);
        // Nobody asked for events: the summary is in the log.
        let quiet: Vec<&str> = TINY
            .iter()
            .filter(|word| !word.starts_with("--json"))
            .copied()
            .collect();
        let quiet = [
            &quiet[..quiet.len() - 1],
            &["--steps", "2", "--out", "run", "--overwrite"],
        ];
        let mut command = super::lost_output::command(folder, &quiet.concat());
        let output = command.stdout(lost.stream()).output().unwrap();
        assert_eq!(code(&output), 0, "{lost:?}: {}", stderr(&output));
    }
    println!("exam L1 {0}/{0}", 2 * Lost::ALL.len());
}

/// The first files that a process opens get the numbers of streams that are closed: what is printed
/// must not end up in them.
#[test]
fn closed_streams_leave_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut command = Command::new("sh");
    let script = "exec \"$@\" <&- >&- 2>&-";
    let words = ["-c", script, "sh", env!("CARGO_BIN_EXE_gpipe"), "train"];
    command.current_dir(folder).args(words).args(SMALL);
    command.args(["--steps", "3", "--out", "run", "-v", "--json"]);
    assert_eq!(command.status().unwrap().code(), Some(0));
    let read = |name: &str| fs::read_to_string(folder.join("run").join(name)).unwrap();
    let log = read("log.txt");
    assert!(log.starts_with("gpt-nano: ") && !log.contains('{'), "{log}");
    let events = parse(&read("events.jsonl"));
    assert_eq!(
        (events[0]["kind"].as_str(), events.len()),
        (Some("start"), 6)
    );
    objects(&resume(folder, &["run", "--steps", "4"]));
    println!("exam L1 1/1");
}

#[test]
fn another_commands_reader_may_leave() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 5] = [
        &["plan", "--costs", "1,2,3", "--stages", "2"],
        &["devices", "--json"],
        &["help", "schedules"],
        &["train", "--help"],
        &["--help"],
    ];
    for arguments in commands {
        for (lost, expected) in [(Lost::Pipe, 0), (Lost::Full, 1)] {
            let mut command = command(folder.path(), arguments);
            let output = command.stdout(lost.stream()).output().unwrap();
            assert_eq!(code(&output), expected, "{lost:?} {arguments:?}");
            let said = stderr(&output).contains("error: cannot write ");
            assert_eq!(said, expected == 1, "{lost:?} {arguments:?}");
        }
    }
    println!("exam L1 {0}/{0}", 2 * commands.len());
}

/// Log, events and curves reach a limit that checkpoints do not: they end with whole records, and the
/// run ends well.
#[test]
fn a_record_that_cannot_grow_costs_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = ["--steps", "700", "--save-every", "0", "--out", "run"];
    let mut command = command(folder, &[TINY, &run].concat());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let room = Rlimit {
        current: Some(90_000),
        maximum: Some(90_000),
    };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, room).unwrap();
    let output: Output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(code(&output), 0, "{said}");
    let name = "run/events.jsonl: File too large (os error 27)";
    let warned = said.matches(name).count();
    // When it happened, and at the end.
    assert_eq!(warned, 2, "{said}");
    assert!(said.contains("training goes on without it"), "{said}");
    assert!(said.contains("ulimit -f"), "{said}");
    let events = fs::read_to_string(folder.join("run/events.jsonl")).unwrap();
    let steps = of_kind(&parse(&events), "step").len();
    assert!(
        events.ends_with('\n') && (100..700).contains(&steps),
        "{steps}"
    );
    assert!(folder.join("run/checkpoints/step-00000700").is_dir());
    let page = super::super::gpipe(folder, &["report", "run"]);
    assert!(stdout(&page).contains("report.html"));
}
