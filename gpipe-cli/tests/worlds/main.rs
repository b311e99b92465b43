//! Pipelines and their replicas over ranks, threads with nothing in common but messages and processes of real
//! launchers: the bits of one stage in one process, for every number of both.
//!
//! `GPIPE_EXAM=full` takes every way; otherwise it is some of them. Launchers are those that `GPIPE_MPIRUN` names
//! (paths parted by `:`).

mod evaluation;
mod faults;
mod hosts;
#[cfg(target_os = "linux")]
mod job;
mod kills;
#[path = "../../../gpipe-mpi/tests/common/launcher.rs"]
mod launcher;
mod predictions;
mod replicas;
#[path = "../common/tensors.rs"]
mod tensors;

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use gpipe_sched::{InMemory, World};
use gpipe_train::verify::{Verdict, Verification};
use gpipe_train::{Overrides, Setting, TrainConfig};

/// Groups of micro-batches, of which there are seven: no number of replicas divides them evenly.
const GROUPS: usize = 4;
const STEPS: u64 = 2;

/// A way to run a training step.
#[derive(Clone, Debug)]
struct Way {
    replicas: usize,
    /// Of each replica.
    ranks: usize,
    workers: usize,
    schedule: &'static str,
    remat: &'static str,
    zero: usize,
}

impl Way {
    /// Of all replicas.
    fn ranks(&self) -> usize {
        self.replicas * self.ranks
    }

    fn stages(&self) -> usize {
        match self.schedule {
            "gpipe" | "1f1b" => self.workers,
            _ => 2 * self.workers,
        }
    }

    /// The keys of its configuration, of a model with ties and dropout whose gradients are clipped.
    fn settings(&self) -> Vec<String> {
        let model = [
            "model.width=16",
            "model.blocks=4",
            "model.heads=2",
            "model.dropout=0.2",
            "data.seq_len=8",
            "data.batch_size=9",
            "optimizer.clip_norm=0.1",
            "pipeline.threads=1",
            "pipeline.micro_batches=7",
        ];
        let own = [
            format!("pipeline.groups={GROUPS}"),
            format!("pipeline.replicas={}", self.replicas),
            format!("pipeline.zero={}", self.zero),
            format!("pipeline.stages={}", self.stages()),
            format!("pipeline.schedule={}", self.schedule),
            format!("pipeline.remat={}", self.remat),
        ];
        model.map(str::to_owned).into_iter().chain(own).collect()
    }

    /// Whether it has the bits of one stage, over ranks that are threads.
    fn is_equal(&self) -> bool {
        is_equal(&self.settings(), self.ranks())
    }

    /// The same over processes.
    fn is_equal_under(&self, launcher: &Path, options: &[String]) -> bool {
        let near = tempfile::tempdir().expect("a folder");
        let mut command = launched(launcher, self.ranks(), near.path(), options, &[]);
        command.arg("verify");
        command.args(["--steps", &STEPS.to_string()]);
        command.args(
            self.settings()
                .iter()
                .flat_map(|setting| ["--set", setting]),
        );
        let output = command.output().expect("a launcher");
        let said = String::from_utf8_lossy(&output.stdout);
        let is_equal = output.status.success() && said.matches("equal: ").count() == 1;
        if !is_equal {
            let errors = String::from_utf8_lossy(&output.stderr);
            println!("{launcher:?}, {}: {said}{errors}", output.status);
        }
        is_equal
    }
}

/// A configuration of these settings on one of as many ranks.
fn configuration(settings: &[String], ranks: usize) -> TrainConfig {
    let settings = settings.iter().map(|setting| {
        let (key, value) = setting.split_once('=').expect("a key and a value");
        Setting::text(setting, key, value)
    });
    let config = Overrides::new().layer(settings).expect("known keys");
    config.on_ranks(ranks, ranks).resolve().expect("a way")
}

/// What every rank returns, of ranks that are threads.
fn on_threads<R: Send>(ranks: usize, of_rank: impl Fn(Arc<World>) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let of_rank = &of_rank;
        let start = |end| scope.spawn(move || of_rank(World::new(end)));
        let started: Vec<_> = InMemory::new(ranks).into_iter().map(start).collect();
        let results = started.into_iter();
        results.map(|rank| rank.join().expect("a rank")).collect()
    })
}

/// Whether these settings have the bits of one stage, over ranks that are threads.
fn is_equal(settings: &[String], ranks: usize) -> bool {
    let verdicts = on_threads(ranks, |world| -> Verdict {
        let config = configuration(settings, ranks);
        let found = gpipe_train::vocabulary(&config, None).expect("a vocabulary");
        let dataset = gpipe_train::dataset(&config, &found.vocabulary).expect("samples");
        let verification = Verification::over(&config, Some(world)).expect("a way");
        verification.run(&dataset, STEPS, || {}).expect("a run")
    });
    verdicts[0].parameters > 0 && verdicts.iter().all(|one| one.difference.is_none())
}

/// `gpipe` on this number of ranks, with these options of the launcher; `before` is a command that starts it. Temporary files
/// are below the folder `near`.
fn launched(
    launcher: &Path,
    ranks: usize,
    near: &Path,
    options: &[String],
    before: &[String],
) -> Command {
    let mut command = launcher::launcher(launcher, near);
    command.args(options);
    command.args(["-np", &ranks.to_string()]);
    command.args(before).arg(env!("CARGO_BIN_EXE_gpipe"));
    command
}

/// Every way: replicas, ranks and workers of each, schedules, policies.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for replicas in [1, 2, 4] {
        for (workers, ranks) in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)] {
            for schedule in ["gpipe", "1f1b", "interleaved:2", "zb-v"] {
                for remat in ["keep", "stage"] {
                    for zero in 0..=usize::from(replicas > 1) {
                        ways.push(Way {
                            replicas,
                            ranks,
                            workers,
                            schedule,
                            remat,
                            zero,
                        });
                    }
                }
            }
        }
    }
    ways
}

#[test]
fn every_world_trains_to_the_bits_of_one_process() {
    let is_full = env::var_os("GPIPE_EXAM").is_some();
    let ways = ways();
    // Every value of each is among some.
    let some = |stride: usize| ways.iter().step_by(if is_full { 1 } else { stride });
    let mut tried = 0;
    for way in some(11) {
        assert!(way.is_equal(), "{way:?}");
        tried += 1;
    }
    let launchers = env::var_os("GPIPE_MPIRUN");
    if launchers.is_none() {
        println!("no launcher: GPIPE_MPIRUN names none");
    }
    for launcher in launchers.iter().flat_map(env::split_paths) {
        for way in some(47) {
            assert!(way.is_equal_under(&launcher, &[]), "{launcher:?} {way:?}");
            tried += 1;
        }
    }
    println!("exam R1 {tried}/{tried}");
}

/// A configuration that adds in another order has other bits: the comparison would see it.
#[test]
fn teeth_of_the_bits() {
    let way = |replicas| Way {
        replicas,
        ranks: 1,
        workers: 1,
        schedule: "gpipe",
        remat: "keep",
        zero: 0,
    };
    let losses = |groups: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
        let folder = tempfile::tempdir().expect("a folder");
        command
            .current_dir(folder.path())
            .args(["train", "--steps", "3", "--json"]);
        command.args(
            way(1)
                .settings()
                .iter()
                .flat_map(|setting| ["--set", setting]),
        );
        command.args(["--groups", groups]);
        let said = String::from_utf8(command.output().expect("a run").stdout).expect("text");
        let steps = said.lines().filter(|line| line.contains("\"grad_norm\""));
        let norms = steps.map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("an event");
            event["grad_norm"].to_string()
        });
        norms.collect::<Vec<String>>()
    };
    let [one, four] = ["1", "4"].map(losses);
    assert_eq!(one.len(), 3);
    assert_ne!(one, four);
    println!("exam R1 teeth 1/1");
}
