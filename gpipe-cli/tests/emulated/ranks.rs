//! Ranks whose GPUs pass flows by NCCL: the bits of one process, and faults that end the job with one clear line.
//!
//! Launchers are those that `GPIPE_MPIRUN` names (paths parted by `:`); there is nothing to look at without one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::host::Outcome;
use super::launcher;
use super::{Place, TINY, seeds};

/// Of each rank. Stages 1 and 2 are on different ranks.
const DEVICES: &str = "cuda:0,cuda:1";
/// Flows between the ranks: four micro-batches of three steps, in both directions.
const FLOWS: u64 = 4 * 3 * 2;
/// What no job may take to end after a fault.
const LIMIT: Duration = Duration::from_secs(60);

fn launchers() -> Vec<PathBuf> {
    let Some(launchers) = env::var_os("GPIPE_MPIRUN") else {
        println!("no launcher: GPIPE_MPIRUN names none");
        return Vec::new();
    };
    env::split_paths(&launchers).collect()
}

/// Trains the tiny model over two ranks to the run `run`. `settings` of the emulated host are those of all ranks, `of_last`
/// those of the second beside them; with `nccl`, hosts have NCCL.
fn train(
    place: &Place,
    launcher: &Path,
    (devices, arguments): (&str, &[&str]),
    (settings, of_last, nccl): (&str, &str, bool),
) -> Outcome {
    let mut command = launcher::launcher(launcher, place.folder.path());
    command.current_dir(place.folder.path());
    command.env("XDG_CACHE_HOME", place.path("cache"));
    let of_last = format!(
        "[ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" = 1 ] && export EMULATED_GPU=\"$EMULATED_GPU {of_last}\"; exec \"$@\""
    );
    command.args(["-np", "2", "sh", "-c", &of_last, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_gpipe"));
    command.args(["train", "--overwrite", "--mpi-timeout", "5"]);
    command
        .args(TINY)
        .args(["--devices", devices])
        .args(arguments);
    match nccl {
        true => place.host.run_with_nccl(&mut command, settings),
        false => place.host.run(&mut command, settings),
    }
}

/// The number of calls of a function by all ranks, which wrote them to this file.
fn calls(file: &Path, name: &str) -> u64 {
    let lines = fs::read_to_string(file).unwrap_or_default();
    let of_name = lines
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    of_name.sum()
}

#[test]
fn ranks_with_nccl_train_to_the_bits_of_one_process() {
    let Some(place) = Place::new() else { return };
    assert_ranks_are_alike(&place, &[], seeds(3));
}

#[test]
fn activations_in_bf16_pass_as_two_bytes_each() {
    let Some(place) = Place::new() else { return };
    // Flows take more bytes than the gradients of the tied embedding.
    let of = |dtype, seeds| {
        let arguments = ["--dtype", dtype, "--seq-len", "64"];
        assert_ranks_are_alike(&place, &arguments, seeds)
    };
    let (narrow, wide) = (of("bf16", seeds(1)), of("f32", 1));
    assert_eq!(narrow.len(), wide.len());
    for (narrow, wide) in narrow.into_iter().zip(wide) {
        let both = format!("{narrow:?} {wide:?}");
        assert_eq!(2 * narrow[1], wide[1], "{both}");
        assert!(0 < narrow[0] && narrow[0] <= narrow[1], "{both}");
    }
}

/// Trains over ranks with these arguments, with NCCL and without, in as many orders. The bytes of messages without NCCL,
/// counted and predicted, by launcher.
fn assert_ranks_are_alike(place: &Place, more: &[&str], seeds: u64) -> Vec<[u64; 2]> {
    let whole = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"];
    let whole = place.trained("whole", &[&whole, more].concat(), "seed=1");
    let of_launcher = |launcher: PathBuf| {
        let mut messages = [0; 2];
        for (seed, way) in (0..seeds).flat_map(|seed| [(seed, "auto"), (seed, "off")]) {
            let run = format!("{way}-{seed}");
            let file = place.path(&format!("calls-{run}"));
            let settings = format!("seed={seed} calls={}", file.display());
            let key = format!("run.nccl={way}");
            let arguments = ["--json", "-q", "--out", &run, "--set", &key];
            let arguments = [&arguments, more].concat();
            let outcome = train(
                place,
                &launcher,
                (DEVICES, &arguments),
                (&settings, "", true),
            );
            let what = format!("{} {run} {more:?}", launcher.display());
            assert_eq!(place.result(&run, &outcome), whole, "{what}");
            // The two channels were tried by one more each.
            let expected = match way {
                "auto" => FLOWS + 2,
                _ => 0,
            };
            assert_eq!(calls(&file, "ncclSend"), expected, "{what}");
            assert_eq!(calls(&file, "ncclRecv"), expected, "{what}");
            fs::remove_file(&file).expect("calls");
            let keys = ["message_bytes", "predicted_message_bytes"];
            messages = keys.map(|key| place.end(&run)[key].as_u64().unwrap_or(0));
        }
        messages
    };
    launchers().into_iter().map(of_launcher).collect()
}

#[test]
fn without_the_same_nccl_everywhere_flows_pass_through_host_memory() {
    let Some(place) = Place::new() else { return };
    for launcher in launchers() {
        for (devices, settings, of_last, nccl, why) in [
            (
                DEVICES,
                "seed=1",
                "",
                false,
                "no NCCL (libnccl.so.2) on rank 0",
            ),
            (
                DEVICES,
                "seed=1",
                "nccl=21805",
                true,
                "NCCL 2.27.3 on rank 0",
            ),
            (
                DEVICES,
                "seed=1 fail=ncclGetUniqueId:1:2",
                "",
                true,
                "on rank 0",
            ),
            // Workers of both ranks are on one GPU.
            (
                "cuda:0*2",
                "seed=1 gpus=shared",
                "",
                true,
                "between two GPUs",
            ),
        ] {
            let outcome = train(
                &place,
                &launcher,
                (devices, &["--out", "run"]),
                (settings, of_last, nccl),
            );
            let what = format!("{} {settings} {of_last}: {outcome:?}", launcher.display());
            assert!(outcome.is_right(), "{what}");
            let line = outcome
                .stderr
                .lines()
                .find(|line| line.contains("through host memory"));
            assert!(line.is_some_and(|line| line.contains(why)), "{what}");
            // What cannot be had cannot be demanded either.
            let demand = ["--out", "run", "--set", "run.nccl=on"];
            let outcome = train(
                &place,
                &launcher,
                (devices, &demand),
                (settings, of_last, nccl),
            );
            let what = format!("{} {settings} {of_last}: {outcome:?}", launcher.display());
            assert_ne!(outcome.code, Some(0), "{what}");
            assert!(outcome.stderr.contains("run.nccl"), "{what}");
        }
    }
}

#[test]
fn a_rank_that_came_to_its_end_is_no_fault() {
    let Some(place) = Place::new() else { return };
    for launcher in launchers() {
        // A GPU says late that its last transfer is done: the other rank is gone by then.
        let outcome = train(
            &place,
            &launcher,
            (DEVICES, &["-q", "--out", "run"]),
            ("seed=1 polls=40", "", true),
        );
        assert!(outcome.is_right(), "{}: {outcome:?}", launcher.display());
    }
}

#[test]
fn faults_between_gpus_end_the_job() {
    let Some(place) = Place::new() else { return };
    for launcher in launchers() {
        for (settings, of_last, says) in [
            // NCCL hears of a fault, such as one of the network.
            ("seed=1", "sever=20", "NCCL from worker"),
            ("seed=4", "sever=13", "NCCL from worker"),
            // A rank says nothing any more, and NCCL does not notice.
            ("seed=1 deaf=1", "signal=20:19", "silent for"),
            ("seed=3 deaf=1", "signal=13:19", "silent for"),
            // A rank is killed. The launcher may end the others before they say so.
            ("seed=1 deaf=1", "signal=20:9", ""),
            // A call fails.
            ("seed=2", "fail=ncclSend:5:3", "ncclSend"),
            ("seed=2", "fail=ncclRecv:5:3", "ncclRecv"),
        ] {
            let since = Instant::now();
            let arguments = ["-q", "--out", "run", "--steps", "200"];
            let outcome = train(
                &place,
                &launcher,
                (DEVICES, &arguments),
                (settings, of_last, true),
            );
            let what = format!("{} {settings} {of_last}: {outcome:?}", launcher.display());
            assert_ne!(outcome.code, Some(0), "{what}");
            assert!(outcome.stderr.contains(says), "{what}");
            assert!(since.elapsed() < LIMIT, "{what}");
        }
    }
}
