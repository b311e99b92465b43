//! Runs that save every step are killed at random moments (SIGKILL: nothing is said, nothing is
//! finished) and go on under another pipeline each time. No acknowledged checkpoint may be lost, and
//! in the end every bit is that of the run that was never killed. The same with ends of every kind:
//! signals, lost readers, full disks; a run that could save before its end loses no step.
//!
//! `GPIPE_EXAM=full` makes it 1,000 kills and 600 ends; otherwise there are a few.
#![cfg(target_os = "linux")]

mod life;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use life::{End, Life, Until};

/// Steps of a run.
const STEPS: u64 = 40;

/// Pipelines that change no bit.
const PIPELINES: [&[&str]; 6] = [
    &["--stages", "2", "--schedule", "gpipe"],
    &["--stages", "1", "--schedule", "gpipe", "--remat", "keep"],
    &["--stages", "4", "--schedule", "1f1b", "--threads", "2"],
    &[
        "--stages",
        "3",
        "--schedule",
        "gpipe",
        "--remat",
        "except-last",
    ],
    &["--stages", "4", "--schedule", "zb-v", "--remat", "every:2"],
    &["--stages", "4", "--schedule", "interleaved:2"],
];

/// The run that is never killed.
struct Reference {
    /// Loss and gradient norm of each step, as they were printed.
    steps: BTreeMap<u64, [String; 2]>,
    /// The last checkpoint.
    files: [Vec<u8>; 3],
    /// Of the run.
    seconds: f64,
}

/// What happens to a run's folder between a kill and the next life, if the exam is examined.
#[derive(Clone, Copy, Debug)]
enum Planted {
    Nothing,
    /// As if checkpoints were written in place: the newest is cut off.
    Cut,
    /// As if a rename were acknowledged before it is safe: the newest is gone.
    Gone,
    /// As if digests were not verified: a bit of the weights is another.
    Unverified,
    /// As if two saves could mix: the optimizer's state is that of the step before.
    Mixed,
}

/// What became of a run that was killed again and again.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    resumes: usize,
    to_the_end: usize,
}

#[test]
fn no_acknowledged_checkpoint_is_lost() {
    let runs = if is_full() { 200 } else { 2 };
    let kills = if is_full() { 5 } else { 3 };
    let sum = chains("C1", runs, kills, |_| End::Kill);
    println!("{} runs followed to the end, bit for bit", sum.to_the_end);
}

#[test]
fn every_end_is_survived() {
    let runs = if is_full() { 100 } else { 1 };
    chains("L4", runs, 6, |number| End::ALL[number % End::ALL.len()]);
}

/// Whether the numbers are those of the exam.
fn is_full() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}

/// Runs with `kills` ends each, chosen by their number.
fn chains(row: &str, runs: u64, kills: usize, ends: impl Fn(usize) -> End) -> Tally {
    let folder = tempfile::tempdir().unwrap();
    let reference = reference(folder.path());
    let mut sum = Tally::default();
    for run in 0..runs {
        let tally = chain(&reference, run, kills, Planted::Nothing, &ends)
            .unwrap_or_else(|fault| panic!("run {run}: {fault}"));
        sum.kills += tally.kills;
        sum.resumes += tally.resumes;
        sum.to_the_end += tally.to_the_end;
        if is_full() && run % 10 == 9 {
            eprintln!("{} runs: {sum:?}", run + 1);
        }
    }
    assert_eq!(sum.to_the_end as u64, runs);
    // Every kill was survived: also those of a life that had not yet reported from where it resumes.
    let kills = sum.kills;
    assert!(sum.resumes as u64 >= runs && kills >= sum.resumes);
    println!("exam {row} {kills}/{kills}");
    sum
}

#[test]
fn teeth() {
    let folder = tempfile::tempdir().unwrap();
    let reference = reference(folder.path());
    let planted = [
        Planted::Cut,
        Planted::Gone,
        Planted::Unverified,
        Planted::Mixed,
    ];
    for planted in planted {
        let passed = chain(&reference, 7, 1, planted, &|_| End::Kill);
        assert!(passed.is_err(), "{planted:?} goes unnoticed: {passed:?}");
    }
    println!("exam C1 teeth {0}/{0}", planted.len());
    let ends = &End::ALL[1..];
    for &end in ends {
        let passed = chain(&reference, 7, 1, Planted::Gone, &|_| end);
        assert!(
            passed.is_err(),
            "a step lost to {end:?} goes unnoticed: {passed:?}"
        );
    }
    println!("exam L4 teeth {0}/{0}", ends.len());
}

fn reference(folder: &Path) -> Reference {
    let started = Instant::now();
    let mut life = Life::start(folder, &[&life::first(STEPS)[..], PIPELINES[0]].concat());
    let code = life.wait();
    assert_eq!(code, Some(0), "{}", life.errors());
    Reference {
        steps: steps(&life.said),
        files: files(folder).expect("a last checkpoint"),
        seconds: started.elapsed().as_secs_f64(),
    }
}

/// One run, killed and resumed a number of times, and then left to finish.
fn chain(
    reference: &Reference,
    run: u64,
    kills: usize,
    planted: Planted,
    ends: &dyn Fn(usize) -> End,
) -> Result<Tally, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = folder.path();
    let mut random = Random(run.wrapping_mul(2) + 1);
    // About so long do six steps take.
    let span = reference.seconds * 6.0 / STEPS as f64;
    let (mut tally, mut acknowledged) = (Tally::default(), 0);
    let mut life = Life::start(folder, &[&life::first(STEPS)[..], PIPELINES[0]].concat());
    let mut until = Until::Said("save");
    loop {
        let goes_on = tally.resumes < kills;
        // Without a last kill the run comes to its end.
        let end = ends(tally.kills);
        let after = Duration::from_secs_f64(random.unit() * span);
        let killed = goes_on && life.end(until, after, end)?;
        if !killed && life.wait() != Some(0) {
            return Err(format!("a life failed: {}", life.errors()));
        }
        tally.kills += usize::from(killed);
        for (step, numbers) in steps(&life.said) {
            if reference.steps.get(&step) != Some(&numbers) {
                return Err(format!("step {step} is {numbers:?}"));
            }
        }
        for event in &life.said {
            let step = event["step"].as_u64().unwrap_or(0);
            match event["kind"].as_str() {
                Some("save") => acknowledged = step,
                Some("resume") => {
                    tally.resumes += 1;
                    if step < acknowledged {
                        return Err(format!(
                            "goes on from {step}, but {acknowledged} was acknowledged"
                        ));
                    }
                }
                // A run that could save does not lose a step that it told of.
                Some("step") if matches!(end, End::Signal(_) | End::Deaf) => acknowledged = step,
                _ => {}
            }
        }
        if !killed {
            break;
        }
        // Once: the next life may be killed before it tells of itself, and a bit that is flipped twice
        // is as it was.
        if tally.kills == 1 {
            plant(folder, planted, acknowledged);
        }
        let pipeline = PIPELINES[random.below(PIPELINES.len())];
        life = Life::start(folder, &[life::RESUME, pipeline].concat());
        // Most are killed after they have told from where they go on, some before.
        until = match random.below(4) {
            // Signals are asked for once they are heard.
            0 if tally.resumes + 1 < kills && ends(tally.kills) == End::Kill => Until::Started,
            _ => Until::Said("resume"),
        };
    }
    // A run may have made its last step before its last life.
    tally.to_the_end = 1;
    tally.resumes = tally.resumes.max(tally.kills.min(kills));
    match files(folder) {
        Some(files) if files == reference.files => Ok(tally),
        _ => Err("the last checkpoint is another".into()),
    }
}

/// What was printed of each step.
fn steps(said: &[Value]) -> BTreeMap<u64, [String; 2]> {
    let steps = said.iter().filter(|event| event["kind"] == "step");
    steps
        .filter_map(|event| {
            let numbers = [&event["loss"], &event["grad_norm"]].map(Value::to_string);
            Some((event["step"].as_u64()?, numbers))
        })
        .collect()
}

/// The last checkpoint of the last step.
fn files(folder: &Path) -> Option<[Vec<u8>; 3]> {
    let checkpoint = folder.join(format!("run/checkpoints/step-{STEPS:08}"));
    let file = |name: &str| fs::read(checkpoint.join(name)).ok();
    Some([
        file("model/model.safetensors")?,
        file("optimizer.safetensors")?,
        file("state.json")?,
    ])
}

/// Spoils the newest checkpoint of a run, or all from the acknowledged one on: the kill may have come
/// when a newer one stood already and nobody had been told.
fn plant(folder: &Path, planted: Planted, acknowledged: u64) {
    let home = folder.join("run/checkpoints");
    let entries = fs::read_dir(&home).expect("a run with checkpoints");
    let mut steps: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("step-"))
        })
        .collect();
    steps.sort();
    let newest = steps.last().expect("a checkpoint");
    let first = home.join(format!("step-{acknowledged:08}"));
    let counted = steps.iter().filter(|checkpoint| **checkpoint >= first);
    let weights = newest.join("model/model.safetensors");
    match planted {
        Planted::Nothing => {}
        Planted::Cut => counted.for_each(|checkpoint| {
            let weights = checkpoint.join("model/model.safetensors");
            let bytes = fs::read(&weights).unwrap();
            fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
        }),
        Planted::Gone => counted.for_each(|checkpoint| fs::remove_dir_all(checkpoint).unwrap()),
        Planted::Unverified => {
            let mut bytes = fs::read(&weights).unwrap();
            // The lowest bit of an exponent: a factor of two.
            let last = bytes.len() - 2;
            bytes[last] ^= 0x80;
            fs::write(&weights, &bytes).unwrap();
            seal(newest, "model/model.safetensors");
        }
        Planted::Mixed => {
            let before = steps[steps.len() - 2].join("optimizer.safetensors");
            fs::copy(before, newest.join("optimizer.safetensors")).unwrap();
            seal(newest, "optimizer.safetensors");
        }
    }
}

/// Gives a file that was changed its new digest, and the manifest its own.
fn seal(checkpoint: &Path, name: &str) {
    let path = checkpoint.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    let files = manifest["files"].as_array_mut().unwrap();
    let file = files.iter_mut().find(|file| file["name"] == name).unwrap();
    let old = file["sha256"].as_str().unwrap().to_owned();
    let text = text.replace(&old, &digest(&fs::read(checkpoint.join(name)).unwrap()));
    let (list, _) = text.rsplit_once(",\n  \"sha256\"").unwrap();
    let sealed = format!(
        "{list},\n  \"sha256\": \"{}\"\n}}\n",
        digest(list.as_bytes())
    );
    fs::write(&path, sealed).unwrap();
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that are the same in every exam.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
