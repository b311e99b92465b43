//! The real binary on a host whose GPUs are emulated: it trains as on the processor, in every order in
//! which devices may do their work, and what goes wrong there ends in one clear line.
//!
//! This is emulation: it speaks of logic, not of speed.

#[path = "../../../gpipe-tensor/tests/emulated/compile.rs"]
mod compile;
mod failures;
mod graphs;
#[path = "../../../gpipe-tensor/tests/emulated/host.rs"]
mod host;
#[path = "../../../gpipe-mpi/tests/common/launcher.rs"]
mod launcher;
mod missing;
mod mixed;
mod orders;
mod portals;
mod ranks;
mod resume;
#[path = "../common/tensors.rs"]
mod tensors;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use host::{Host, Outcome};

/// A model whose steps take a moment, on four stages.
const TINY: &[&str] = &[
    "--set",
    "model.width=16",
    "--set",
    "model.blocks=2",
    "--set",
    "model.heads=2",
    "--seq-len",
    "8",
    "--batch-size",
    "8",
    "--micro-batches",
    "4",
    "--dropout",
    "0.1",
    "--stages",
    "4",
    "--threads",
    "2",
    "--steps",
    "3",
    "--warmup-steps",
    "1",
];

/// A place to run the program in, with a short text in its file `text`, no sample of which comes twice: an evaluation of
/// the built-in one has thousands of tokens.
struct Place {
    host: &'static Host,
    folder: TempDir,
}

/// What a run came to, to the last bit.
#[derive(Clone, Debug, PartialEq)]
struct Result {
    /// Of each step, as they were printed.
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// Of the last checkpoint.
    parameters: Vec<f32>,
}

impl Place {
    /// A new place, or none after saying why.
    fn new() -> Option<Self> {
        Some(Self::on(Host::get()?))
    }

    /// The same, where reading what nobody wrote is a fault.
    fn with_watched_reads() -> Option<Self> {
        Some(Self::on(Host::with_watched_reads()?))
    }

    fn on(host: &'static Host) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text: String = (100..200).map(|n| format!("{n} pipes drain. ")).collect();
        fs::write(folder.path().join("text"), text).expect("a text");
        Self { host, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            // Images of an emulated compiler stay here.
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("RUST_BACKTRACE");
        command
    }

    /// Runs the program with settings of the emulated host.
    fn run(&self, arguments: &[&str], settings: &str) -> Outcome {
        self.host.run(&mut self.command(arguments), settings)
    }

    /// Trains the tiny model to a run of this name.
    fn train(&self, run: &str, arguments: &[&str], settings: &str) -> Outcome {
        let common = ["train", "--json", "-q", "--overwrite", "--out", run];
        self.run(&[&common, TINY, arguments].concat(), settings)
    }

    /// What became of a run that must have gone well.
    fn result(&self, run: &str, outcome: &Outcome) -> Result {
        assert!(outcome.is_right(), "{run}: {outcome:?}");
        let lines = outcome.stdout.lines();
        let objects = lines.map(|line| serde_json::from_str(line).expect("one object a line"));
        let objects: Vec<Value> = objects.collect();
        let end = self.end(run);
        // What was counted is what was predicted, to the byte.
        assert!(end["peak_bytes"].is_array(), "{end}");
        assert_eq!(end["peak_bytes"], end["predicted_peak_bytes"], "{run}");
        let steps = || objects.iter().filter(|object| object["kind"] == "step");
        let of = |key: &str| steps().filter_map(|step| step[key].as_f64()).collect();
        Result {
            losses: of("loss"),
            norms: of("grad_norm"),
            parameters: parameters(&self.path(run)),
        }
    }

    /// The last event of a run.
    fn end(&self, run: &str) -> Value {
        let events = fs::read_to_string(self.path(run).join("events.jsonl")).expect("events");
        let end = events.lines().last().unwrap_or_default();
        serde_json::from_str(end).expect("the end")
    }

    /// Trains and looks at what came out.
    fn trained(&self, run: &str, arguments: &[&str], settings: &str) -> Result {
        self.result(run, &self.train(run, arguments, settings))
    }

    /// How often a run calls each function of the libraries.
    fn calls(&self, run: &str, arguments: &[&str], settings: &str) -> BTreeMap<String, u64> {
        let log = self.path("calls");
        let _ = fs::remove_file(&log);
        let settings = format!("{settings} calls={}", log.display());
        self.trained(run, arguments, &settings);
        let text = fs::read_to_string(&log).expect("the calls");
        let calls = text.lines().filter_map(|line| line.split_once(' '));
        calls
            .map(|(name, count)| (name.to_owned(), count.parse().expect("a number")))
            .collect()
    }

    /// The loss of the run `run` on the short text.
    fn evaluated(&self, arguments: &[&str]) -> f64 {
        let eval = ["eval", "run", "--data", "text", "--json", "-q"];
        let outcome = self.run(&[&eval, arguments].concat(), "seed=1");
        assert!(outcome.is_right(), "{arguments:?}: {outcome:?}");
        let object: Value = serde_json::from_str(&outcome.stdout).expect("an object");
        object["loss"].as_f64().expect("a loss")
    }

    /// Trains in every order that the seeds below `seeds` draw, hands each result to `look`, and fails
    /// unless all have the bits of `first`, which is the first of them if there was none.
    fn trained_alike(
        &self,
        (arguments, settings): (&[&str], &str),
        seeds: u64,
        first: &mut Option<Result>,
        look: impl Fn(&str, &Result),
    ) {
        for seed in 0..seeds {
            let settings = format!("{settings} seed={seed}");
            let what = format!("{arguments:?} {settings}");
            let got = self.trained("way", arguments, &settings);
            look(&what, &got);
            let first = first.get_or_insert(got.clone());
            assert_eq!(got.losses, first.losses, "{what}");
            assert!(got == *first, "{what}: other parameters than at first");
        }
        println!("exam G1 {seeds}/{seeds}");
    }
}

/// Whether all is tried, and not a part.
fn is_exam() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}

/// Which of `count` calls fail, one after the other: the first or one in the middle of a run by turns, in an exam both.
fn moments(turn: usize, count: u64) -> Vec<u64> {
    let mut moments = vec![1, count.div_ceil(2)];
    moments.dedup();
    match (is_exam(), moments.len()) {
        (false, 2) => vec![moments[turn % 2]],
        _ => moments,
    }
}

/// How many orders each way is tried in: more in an exam.
fn seeds(usual: u64) -> u64 {
    let exam = if is_exam() { 10 } else { 1 };
    std::env::var("GPIPE_SEEDS").map_or(exam * usual, |text| text.parse().expect("a number"))
}

/// The numbers of a run's newest checkpoint.
fn parameters(run: &Path) -> Vec<f32> {
    let checkpoints = fs::read_dir(run.join("checkpoints")).expect("a run with checkpoints");
    let checkpoints = checkpoints.map(|entry| entry.expect("a folder").path());
    let newest = checkpoints.filter(|path| path.is_dir()).max();
    let of_model = tensors::tensors(&newest.expect("a checkpoint"), &tensors::ALL[..1]);
    let bits = of_model.into_values().flatten();
    bits.map(f32::from_bits).collect()
}

/// Fails unless both runs went the same way but for rounding.
fn assert_near(what: &str, got: &Result, wanted: &Result) {
    assert_eq!(got.losses.len(), wanted.losses.len(), "{what}");
    let losses = got.losses.iter().zip(&wanted.losses);
    let norms = got.norms.iter().zip(&wanted.norms);
    for (got, wanted) in losses.chain(norms) {
        assert!(
            (got - wanted).abs() <= 1e-4 * wanted.abs(),
            "{what}: {got} is not {wanted}"
        );
    }
    // AdamW's first steps are as long as the learning rate whatever the gradient is, so where that
    // should be nothing its rounding decides; everywhere else numbers agree.
    let pairs = || got.parameters.iter().zip(&wanted.parameters);
    let apart = pairs()
        .filter(|(got, wanted)| (*got - *wanted).abs() > 1e-4)
        .count();
    let far = pairs().find(|(got, wanted)| (*got - *wanted).abs() > 1e-2);
    assert!(far.is_none(), "{what}: {far:?}");
    assert!(
        apart * 50 <= got.parameters.len(),
        "{what}: {apart} parameters differ"
    );
}
