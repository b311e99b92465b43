//! Runs over the processes of real launchers, those that `GPIPE_MPIRUN` names (paths parted by `:`).

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use super::{SMALL, gpipe, objects, small, stderr, stdout};

/// The program over this many ranks, without arguments.
fn launched(launcher: &Path, ranks: usize, folder: &Path) -> Command {
    let mut started = Command::new(launcher);
    // Open MPI's launcher refuses root, and more ranks than cores.
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        started.envs([(name.to_owned(), "1"), (format!("{name}_CONFIRM"), "1")]);
    }
    started.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    started
        .current_dir(folder)
        .args(["-np", &ranks.to_string()]);
    started.arg(env!("CARGO_BIN_EXE_gpipe"));
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
        let model = |run: &str| {
            let path = format!("{run}/checkpoints/step-00000004/model/model.safetensors");
            std::fs::read(folder.path().join(path)).unwrap()
        };
        assert!(model("run") == model("whole"), "{launcher:?}");
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
        let model = |run: &str| {
            let path = format!("{run}/checkpoints/step-00000004/model/model.safetensors");
            std::fs::read(folder.path().join(path)).unwrap()
        };
        assert!(model("run") == model("whole"), "{launcher:?}");
    }
    let alone = tempfile::tempdir().unwrap();
    let alone = small(alone.path(), "train", &["--replicas", "2"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("mpirun"), "{}", stderr(&alone));
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
