//! Runs over the processes of real launchers, those that `GPIPE_MPIRUN` names (paths parted by `:`).

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::launcher;
use super::tensors::{ALL, tensors};
use super::{SMALL, gpipe, objects, small, stderr, stdout};

/// The checkpoint after four steps, in the folder of a run.
const STEP_4: &str = "checkpoints/step-00000004";

/// The program over this many ranks, without arguments.
fn launched(launcher: &Path, ranks: usize, folder: &Path) -> Command {
    launched_by(launcher, ranks, folder, &[])
}

/// [`launched`], started by a command.
fn launched_by(launcher: &Path, ranks: usize, folder: &Path, before: &[OsString]) -> Command {
    let mut started = launcher::launcher(launcher, folder);
    started
        .current_dir(folder)
        .args(["-np", &ranks.to_string()]);
    started.args(before).arg(env!("CARGO_BIN_EXE_gpipe"));
    started
}

fn on_ranks(launcher: &Path, ranks: usize, folder: &Path, command: &str, more: &[&str]) -> Output {
    let mut started = launched(launcher, ranks, folder);
    started
        .arg(command)
        .args(SMALL)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn ranks_give_the_bits_of_one_process() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let flags = [
            "--stages",
            "4",
            "--micro-batches",
            "3",
            "--schedule",
            "1f1b",
        ];
        let verified = on_ranks(&launcher, 2, folder.path(), "verify", &flags);
        let said = stdout(&verified);
        assert!(verified.status.success(), "{said}{}", stderr(&verified));
        assert_eq!(said.matches("equal: ").count(), 1, "{said}");
        // Two ranks begin, four go on, and one process does all of it.
        let constant = ["--lr-schedule", "constant", "--save-every", "2", "-q"];
        let flags = [&flags[..], &constant].concat();
        let whole = [&flags[..], &["--steps", "4", "--out", "whole"]].concat();
        let whole = small(folder.path(), "train", &whole);
        assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
        let begin = [&flags[..], &["--steps", "2", "--out", "run"]].concat();
        let go_on = ["--resume", "run", "--steps", "4", "-q"];
        for (ranks, flags) in [(2, &begin[..]), (4, &go_on)] {
            let output = on_ranks(&launcher, ranks, folder.path(), "train", flags);
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let saved = |run: &str| tensors(&folder.path().join(run).join(STEP_4), ALL);
        assert!(saved("run") == saved("whole"), "{launcher:?}");
    }
}

/// Two replicas are the same training as one process with two groups, and any world goes on from their checkpoint.
#[test]
fn replicas_give_the_bits_of_one_process_with_as_many_groups() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--micro-batches", "3", "--devices", "cpu"];
        let replicas = [&flags[..], &["--replicas", "2"]].concat();
        for more in [&[][..], &["--schedule", "zb-h1", "--groups", "2"]] {
            let flags = [&replicas[..], more].concat();
            let verified = on_ranks(&launcher, 4, folder.path(), "verify", &flags);
            let said = stdout(&verified);
            assert!(verified.status.success(), "{said}{}", stderr(&verified));
            assert_eq!(said.matches("equal: ").count(), 1, "{said}");
        }
        let constant = ["--lr-schedule", "constant", "--save-every", "2", "-q"];
        let whole = [&flags[..], &constant, &["--groups", "2", "--out", "whole"]].concat();
        let whole = [&whole[..], &["--stages", "2", "--steps", "4"]].concat();
        let whole = small(folder.path(), "train", &whole);
        assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
        let begin = [&replicas[..], &constant, &["--steps", "2", "--out", "run"]].concat();
        let go_on = ["--resume", "run", "--steps", "4", "--replicas", "1", "-q"];
        for (ranks, flags) in [(4, &begin[..]), (2, &go_on)] {
            let output = on_ranks(&launcher, ranks, folder.path(), "train", flags);
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let saved = |run: &str| tensors(&folder.path().join(run).join(STEP_4), ALL);
        assert!(saved("run") == saved("whole"), "{launcher:?}");
    }
    let alone = tempfile::tempdir().unwrap();
    let alone = small(alone.path(), "train", &["--replicas", "2"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("mpirun"), "{}", stderr(&alone));
}

/// Ranks write their parts beside each other where all of them see the folder of the run; else rank 0 writes the files of one
/// process. Every command that reads checkpoints reads both.
#[test]
fn ranks_write_their_parts_where_they_share_the_folder() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let flags = [
            ["--lr-schedule", "constant"],
            ["--save-every", "2"],
            ["--steps", "4"],
            ["--micro-batches", "2"],
        ];
        let flags = [&flags.concat()[..], &["-q", "--out"]].concat();
        let train = |before: &[OsString], more: &[&str]| {
            let mut run = launched_by(&launcher, 2, here, before);
            run.arg("train").args(SMALL).args(&flags).args(more);
            let run = run.output().unwrap();
            assert!(run.status.success(), "{}", stderr(&run));
        };
        for more in [&["whole"][..], &["groups", "--groups", "2"]] {
            let alone = small(here, "train", &[&flags[..], more].concat());
            assert_eq!(alone.status.code(), Some(0), "{}", stderr(&alone));
        }
        train(&[], &["run", "--stages", "2"]);
        train(&[], &["states", "--replicas", "2", "--zero", "1"]);
        let saved = |run: &str| tensors(&here.join(run).join(STEP_4), ALL);
        assert!(saved("run") == saved("whole"), "{launcher:?}");
        assert!(saved("states") == saved("groups"), "{launcher:?}");
        for run in ["run", "states"] {
            let step = here.join(run).join(STEP_4);
            for file in ["optimizer", "model/model"] {
                for part in 1..=2 {
                    let part = step.join(format!("{file}-{part:05}-of-00002.safetensors"));
                    assert!(part.is_file(), "{part:?}");
                }
                assert!(
                    step.join(format!("{file}.safetensors.index.json"))
                        .is_file()
                );
                assert!(!step.join(format!("{file}.safetensors")).exists());
            }
            let checked = gpipe(here, &["check", run]);
            assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        }
        // A folder of the model like any other.
        let model = format!("run/{STEP_4}/model");
        let prompt = ["--prompt", "the ", "--tokens", "5"];
        for [of_parts, of_one] in [["run", "whole"], [&model, &format!("whole/{STEP_4}/model")]] {
            let sample = |of: &str| stdout(&gpipe(here, &[&["sample", of][..], &prompt].concat()));
            assert_eq!(sample(of_parts), sample(of_one));
            assert!(!sample(of_one).is_empty());
        }
        let loss = |of: &str| objects(&gpipe(here, &["eval", of, "--json"]))[0]["loss"].clone();
        assert_eq!(loss("run"), loss("whole"));
        assert!(loss("run").is_number());
        let goes_on = [
            "train", "--resume", "run", "--steps", "5", "-q", "--out", "on",
        ];
        let goes_on = gpipe(here, &goes_on);
        assert_eq!(goes_on.status.code(), Some(0), "{}", stderr(&goes_on));
        // An index that leads elsewhere, by somebody who made the folder.
        let index = here.join(&model).join("model.safetensors.index.json");
        let text = std::fs::read_to_string(&index).unwrap();
        std::fs::write(&index, text.replace("model-00002", "../model-00002")).unwrap();
        let refused = gpipe(here, &["eval", &model, "--data", "cicero"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let told = stderr(&refused);
        assert!(
            told.contains("only files beside it") && told.lines().count() == 1,
            "{told}"
        );
        // Where other ranks do not see the folder, which root alone can hide from them.
        std::fs::create_dir(here.join("hidden")).unwrap();
        let mut may_hide = Command::new("unshare");
        may_hide.args(["-m", "mount", "-t", "tmpfs", "none", "hidden"]);
        let may_hide = may_hide.current_dir(here).output();
        if may_hide.is_ok_and(|output| output.status.success()) {
            let hide = "test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 || mount -t tmpfs none hidden; exec \"$@\"";
            let before = ["unshare", "-m", "sh", "-c", hide, "sh"].map(OsString::from);
            train(&before, &["hidden/run", "--stages", "2"]);
            let step = here.join("hidden/run").join(STEP_4);
            assert!(step.join("optimizer.safetensors").is_file());
            assert!(saved("hidden/run") == saved("whole"), "{launcher:?}");
        }
    }
}

/// What is printed over ranks is what one process prints, once; where one process does the work, several are refused.
#[test]
fn rank_0_speaks_for_all() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--stages", "2", "--steps", "2", "--out", "run", "-q"];
    let trained = small(folder.path(), "train", &flags);
    assert_eq!(trained.status.code(), Some(0), "{}", stderr(&trained));
    let prompt = ["--prompt", "the ", "--tokens", "5"];
    for launcher in env::split_paths(&launchers) {
        let over = |arguments: &[&str]| {
            let mut over = launched(&launcher, 2, folder.path());
            over.args(arguments).output().unwrap()
        };
        for command in [
            &["eval", "run", "--json"][..],
            &[&["sample", "run", "--beams", "2"], &prompt[..]].concat(),
        ] {
            let (alone, over) = (gpipe(folder.path(), command), over(command));
            assert!(over.status.success(), "{}", stderr(&over));
            assert_eq!(stdout(&over).replace('\r', ""), stdout(&alone));
        }
        let found = objects(&over(&["devices", "--json"]));
        let mpi = found.iter().find(|object| object["kind"] == "mpi").unwrap();
        assert_eq!(
            (mpi["ranks"].as_u64(), &mpi["rule"]),
            (Some(2), &"beside the launcher".into())
        );
        let ranks = found.iter().filter(|object| object["kind"] == "rank");
        let ranks: Vec<_> = ranks.map(|object| object["rank"].as_u64()).collect();
        assert_eq!(ranks, [Some(0), Some(1)]);
        let measured = ["plan", "--profile", "--model", "gpt-nano", "--json"];
        let measured = over(&[&measured[..], &["--stages", "2"]].concat());
        assert!(measured.status.success(), "{}", stderr(&measured));
        let measured = objects(&measured);
        let link = &measured[0];
        assert_eq!((&link["kind"], &link["to"]), (&"link".into(), &1.into()));
        assert!(link["latency_seconds"].as_f64() > Some(0.0), "{link}");
        assert!(link["bytes_per_second"].as_f64() > Some(0.0), "{link}");
        assert_eq!(measured.last().unwrap()["basis"], "profile");
        let refused = over(&["plan"]);
        assert!(!refused.status.success());
        assert_eq!(stderr(&refused).matches("runs in one process").count(), 1);
    }
}

/// A launcher that is sent SIGUSR1 passes it on, and waits until the ranks have saved.
#[test]
fn a_signal_to_the_launcher_stops_and_saves() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let mut run = launched(&launcher, 2, folder.path());
        run.arg("train").args(SMALL).args(["--stages", "2"]);
        run.args(["--steps", "1000000", "--save-every", "0", "--out", "run"]);
        let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(run.stderr.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let begun: Vec<String> = lines
            .by_ref()
            .take_while(|line| !line.starts_with("step 1/"))
            .collect();
        let advice = begun.iter().filter(|line| line.contains("kill -USR1"));
        let is_open_mpi = launcher.ends_with("mpirun");
        assert_eq!(advice.count(), usize::from(is_open_mpi), "{begun:?}");
        let id = run.id().to_string();
        let sent = Command::new("kill").args(["-USR1", &id]).status();
        assert!(sent.unwrap().success());
        let rest: Vec<String> = lines.collect();
        assert_eq!(run.wait().unwrap().code(), Some(130), "{rest:?}");
        assert!(
            rest.iter().any(|line| line.contains(": saved;")),
            "{rest:?}"
        );
        assert!(folder.path().join("run/checkpoints/latest").exists());
    }
}

/// The command that is printed for ranks, with the flags behind the program, trains on as many of them.
#[test]
fn the_recommended_command_runs_over_ranks() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let measure = ["--profile", "--auto", "--stages", "2"];
        let planned = on_ranks(&launcher, 4, folder.path(), "plan", &measure);
        assert!(planned.status.success(), "{}", stderr(&planned));
        let text = stdout(&planned);
        assert!(text.contains("\n2 to 3 "), "{text}");
        let command = text.lines().find_map(|line| line.strip_prefix("use "));
        let command = command.unwrap().replace('\'', "");
        let words: Vec<&str> = command.split_whitespace().collect();
        let [_, "-np", ranks, "gpipe", flags @ ..] = &words[..] else {
            panic!("{command}");
        };
        let mut run = launched(&launcher, ranks.parse().unwrap(), folder.path());
        let run = run.args(flags).args(["--steps", "1", "-q"]).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{command}: {}", stderr(&run));
    }
}

/// Each rank would plan for its own process, by times of its own.
#[test]
fn ranks_that_would_each_follow_a_plan_of_their_own_are_told_of_one_for_all() {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        return;
    };
    for launcher in env::split_paths(&launchers) {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["--auto", "--profile", "--steps", "1"];
        let refused = on_ranks(&launcher, 2, folder.path(), "train", &arguments);
        let told = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        let errors = told.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{told}");
        assert!(
            told.contains("run gpipe plan --auto --profile under the same launcher"),
            "{told}"
        );
    }
}

/// `--mpi` is a flag of the commands that train.
#[test]
fn a_command_without_the_flag_of_a_library_names_another_mend() {
    let folder = tempfile::tempdir().unwrap();
    for line in [&["devices"][..], &["train", "--steps", "1"]] {
        let mut command = assert_cmd::Command::cargo_bin("gpipe").unwrap();
        command.current_dir(folder.path());
        command.envs([("PMI_SIZE", "2"), ("PMI_RANK", "0")]);
        let output = command.args(line).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        let mends = ["use --mpi PATH of", "add to LD_LIBRARY_PATH the folder of"];
        let named = mends.map(|mend| told.contains(mend));
        assert_eq!(named, [line[0] == "train", line[0] == "devices"], "{told}");
    }
}

/// Before MPI has started, nobody speaks for a rank that fails.
#[test]
fn a_rank_that_fails_alone_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = assert_cmd::Command::cargo_bin("gpipe").unwrap();
    command.current_dir(folder.path());
    command.envs([("PMI_SIZE", "2"), ("PMI_RANK", "1")]);
    let output = command
        .args(["train", "--mpi", "none.so"])
        .output()
        .unwrap();
    let told = stderr(&output);
    assert_eq!(
        (output.status.code(), told.lines().count()),
        (Some(2), 1),
        "{told}"
    );
    assert!(
        told.starts_with("error: ") && told.contains("none.so"),
        "{told}"
    );
}
