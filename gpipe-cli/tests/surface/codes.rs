//! Exit codes of what is typed often, rightly and wrongly.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{gpipe, stdout, tiny};

/// Lines as typed after `gpipe`, words parted by spaces. `run` is a run of two steps.
const LINES: &[&str] = &[
    // Help.
    "",
    "--help",
    "-h",
    "--version",
    "-V",
    "help",
    "help train",
    "help schedules",
    "help nothing",
    "train --help",
    "generate",
    "generate completions bash",
    "generate completions tcsh",
    "generate man",
    // Unknown words.
    "trian",
    "train notes.txt",
    "train --stagse 2",
    "train --gpus 2",
    "train --stages",
    "plan --color sometimes",
    "devices cpu",
    // What is right.
    "devices",
    "devices --json -q",
    "plan",
    "plan -q",
    "plan -v",
    "plan --json",
    "plan --color never",
    "plan --stages 2 --stages 3",
    "plan --set run.steps=2 --set run.steps=3",
    "plan --model bench-a",
    "plan --config good.toml",
    "plan --config run/config.toml",
    "plan --costs 1,2,3 --stages 2",
    "plan --costs costs.json --stages 2",
    "plan --costs 1,2,3 --auto",
    "plan --costs 1,2,3 --compare -q",
    "plan --auto --workers 8*300T:80GiB,4*100T:16GiB --link 5e-6:25G",
    "plan --memory 100KiB",
    "train --dry-run",
    "train --auto --dry-run",
    "train --resume run --steps 2 -q",
    "eval run --threads 2",
    "sample run --tokens 2",
    "sample run --prompt Et --tokens 2 --temperature 0 --top-k 3 --seed 4",
    "report run",
    "report run run --out two.html",
    // Flags that exclude or need others.
    "plan -q -v",
    "plan --micro-batches 2 --micro-batch-size 2",
    "plan --auto --compare",
    "plan --profile --costs 1,2",
    "plan --profile --workers 2*1T",
    "plan --workers 2*1T",
    "plan --auto --link 1:1",
    "train --overwrite",
    "train --profile",
    "train --resume run --config good.toml",
    "train --resume run --auto",
    // Values that cannot be.
    "train --stages 0",
    "train --stages -1",
    "train --stages two",
    "train --stages 99",
    "plan --costs 1,2,3,4,5,6 --stages 8",
    "train --stages 3 --devices cpu*2",
    "train --devices cpu*0",
    "train --devices tpu",
    "train --devices cuda:99",
    "train --micro-batches 0",
    "train --micro-batches 17",
    "train --micro-batch-size 0",
    "train --batch-size 0",
    "train --batch-size 99999999999999999999",
    "train --seq-len 0",
    "train --seq-len 99999",
    "train --partition 3,3,3,3",
    "train --partition even",
    "train --schedule zigzag",
    "train --schedule 1F1B",
    "train --schedule interleaved",
    "train --schedule missing.csv",
    "train --schedule zb-v --stages 3",
    "train --remat every:0",
    "train --remat full",
    "train --remat budget:1B",
    "train --cost-model cheap",
    "train --memory none",
    "train --memory 100KiB",
    "train --threads 0",
    "train --lr fast",
    "train --lr nan",
    "train --lr -0.1",
    "train --lr-schedule linear",
    "train --warmup-steps -1",
    "train --dropout 1",
    "train --dropout 50%",
    "train --steps 0",
    "train --steps 1e3",
    "train --seed -3",
    "train --trace-steps 5..2",
    "train --watchdog 0",
    "train --dtype f16",
    "train --model gpt3",
    "train --model mlp --set model.blocks=2",
    "train --set model.hidden=8",
    "train --set lr",
    "train --set stages=4",
    "train --set optimiser.lr=1",
    "train --set pipeline.stagse=3",
    "train --set model.heads=3",
    "train --set model.vocab=9",
    "plan --costs 10,-4",
    "plan --costs 10;20",
    "plan --costs missing.json",
    "plan --auto --workers 8x1T",
    "plan --auto --memory 1KiB",
    "verify --stages 12",
    "sample run --temperature -1",
    "sample run --top-k 0",
    // Files that are missing, or others than they should be.
    "train --data missing.txt",
    "train --data empty.txt",
    "train --data folder",
    "train --tokenizer missing.json",
    "train --config missing.toml",
    "train --config typo.toml",
    "train --config syntax.toml",
    "train --out folder",
    "train --out empty.txt --overwrite",
    "train --resume missing",
    "train --resume folder",
    "train --resume run --steps 1",
    "train --resume run --set model.width=32",
    "eval",
    "eval missing",
    "eval folder",
    "sample missing",
    "report",
    "report missing",
    "report folder",
    "report run run run",
];

#[test]
fn lines_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    write("empty.txt", "");
    write(
        "costs.json",
        "{\"layers\": [{\"forward\": 1}, {\"forward\": 2}]}",
    );
    write("good.toml", "[run]\nsteps = 3\n");
    write("typo.toml", "[pipeline]\nstagse = 3\n");
    write("syntax.toml", "[run]\nsteps =\n");
    let train = ["--steps", "2", "--out", "run", "-q"];
    stdout(&tiny(folder.path(), "train", &train));
    let mut codes = String::new();
    for line in LINES {
        if line.contains("mlp") && cfg!(not(feature = "digits")) {
            continue;
        }
        let arguments: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let output = gpipe(folder.path(), &arguments);
        let code = output.status.code().expect("an exit code");
        let said = String::from_utf8_lossy(&output.stderr);
        if code != 0 && !arguments.is_empty() && *line != "generate" {
            assert!(said.starts_with("error: "), "{line}: {said}");
            assert!(output.stdout.is_empty(), "{line}");
        }
        writeln!(codes, "{code}  gpipe {line}").unwrap();
    }
    if cfg!(feature = "digits") {
        insta::assert_snapshot!(codes);
    }
}

#[test]
fn a_run_that_diverges_fails_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let train = ["--lr", "1e30", "--clip-norm", "0", "-q", "--out", "run"];
    assert_eq!(tiny(folder.path(), "train", &train).status.code(), Some(1));
}

#[cfg(unix)]
mod unix {
    //! Signals, and readers that go away.

    use std::io::{BufRead, BufReader, Write as _, pipe};
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::{TINY, ignored_signals};
    use super::Path;

    /// A run that would take long.
    fn start(folder: &Path, stdout: Stdio) -> Child {
        ignored_signals::are_not_inherited();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("gpipe"));
        command.current_dir(folder).arg("train").args(TINY);
        let long = ["--steps", "1000000", "--json", "-q", "--out", "run"];
        let command = command.args(long).stdout(stdout).stderr(Stdio::null());
        command.spawn().expect("the binary runs")
    }

    #[test]
    fn signals_stop_it_with_130_and_a_checkpoint() {
        for signal in ["-INT", "-TERM", "-HUP", "-USR1", "-USR2"] {
            let folder = tempfile::tempdir().unwrap();
            let mut child = start(folder.path(), Stdio::piped());
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.next().unwrap().unwrap().contains("\"step\":1,"));
            let id = child.id().to_string();
            let sent = Command::new("kill").args([signal, &id]).status();
            assert!(sent.unwrap().success());
            let last = lines.map(Result::unwrap).last().expect("a last line");
            assert!(last.contains("\"kind\":\"save\""), "{last}");
            assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        }
    }

    /// A terminal that Ctrl-S has stopped does the same.
    #[test]
    fn a_reader_that_does_not_read_keeps_no_run_from_saving() {
        for flags in [&["--json", "-q"][..], &["-v"]] {
            let folder = tempfile::tempdir().unwrap();
            let (reader, mut writer) = pipe().unwrap();
            let mut command = Command::new(assert_cmd::cargo::cargo_bin("gpipe"));
            command.current_dir(folder.path()).arg("train").args(TINY);
            command
                .args(["--steps", "1000000", "--out", "run"])
                .args(flags);
            command.stdout(writer.try_clone().unwrap());
            command.stderr(writer.try_clone().unwrap());
            // More than a pipe holds.
            let fill = thread::spawn(move || writer.write_all(&[b'\n'; 1 << 21]));
            ignored_signals::are_not_inherited();
            let mut child = command.spawn().expect("the binary runs");
            drop(command);
            let since = Instant::now();
            while !folder.path().join("run/events.jsonl").exists() {
                assert!(since.elapsed() < Duration::from_secs(60));
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(500));
            let kill = ["-TERM", &child.id().to_string()];
            assert!(Command::new("kill").args(kill).status().unwrap().success());
            let code = loop {
                if let Some(code) = child.try_wait().unwrap() {
                    break code.code();
                }
                let is_late = since.elapsed() > Duration::from_secs(120);
                if is_late {
                    child.kill().unwrap();
                }
                thread::sleep(Duration::from_millis(10));
            };
            assert_eq!(code, Some(130), "{flags:?}");
            assert!(folder.path().join("run/checkpoints/latest").exists());
            drop(reader);
            assert!(fill.join().unwrap().is_err());
        }
    }

    #[test]
    fn a_reader_that_goes_away_stops_a_run_with_1_and_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start(folder.path(), Stdio::piped());
        // Before anything was written.
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(folder.path().join("run/checkpoints/latest").exists());
    }

    #[test]
    fn a_closed_pipe_is_no_failure_of_other_commands() {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("gpipe"));
        let command = command.args(["plan", "--costs", "1,2,3", "--stages", "2"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut child = start(folder.path(), full.unwrap().into());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(folder.path().join("run/checkpoints/latest").exists());
    }
}
