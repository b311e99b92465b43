//! A training step of ResNet-50, beside PyTorch's.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::calm;
use super::runs::{self, Run};
use super::table::table;
use super::turns::{self, Took, median};
use crate::flags::Bench;

/// Height and width of an image.
const SIZES: [usize; 2] = [64, 128];
/// PyTorch's side.
const SCRIPT: &str = "xtask/src/bench/images/resnet.py";
/// Where PyTorch keeps the channels of a pixel: apart, its default, or together.
const FORMATS: [&str; 2] = ["contiguous", "channels_last"];

/// Size of images and number of threads.
type Case = (usize, usize);

/// Measures all sizes, in turns with PyTorch where there is one, and prints a table.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let (rounds, steps) = (flags.rounds.unwrap_or(5), flags.steps.unwrap_or(4));
    let threads = flags.threads.map_or(vec![1, 2], |threads| vec![threads]);
    anyhow::ensure!(
        rounds > 0 && steps > 0 && !threads.contains(&0),
        "threads, rounds and steps must be at least 1"
    );
    let python = flags.python.clone().unwrap_or_else(|| "python3".into());
    let torch = turns::has_modules(shell, &python, &["torch"], "images");
    cmd!(shell, "cargo build --release").run()?;
    let cases = SIZES
        .iter()
        .flat_map(|&size| threads.iter().map(move |&n| (size, n)));
    let mut all: Vec<(Case, Vec<Round>)> = cases.map(|case| (case, Vec::new())).collect();
    for round in 1..=rounds {
        for (case, found) in &mut all {
            let (size, threads) = *case;
            eprintln!(
                "images: round {round} of {rounds}, {size} x {size} pixels, {threads} threads"
            );
            let ours = Took::of(&runs::train(shell, &arguments(*case), steps)?)?;
            let mut theirs = Vec::new();
            for format in FORMATS.iter().filter(|_| torch) {
                theirs.push(peer(
                    shell,
                    &python,
                    &root.join(SCRIPT),
                    *case,
                    format,
                    steps,
                )?);
            }
            found.push(Round { ours, theirs });
        }
    }
    if flags.json {
        for (case, rounds) in &all {
            println!("{}", line(*case, rounds)?);
        }
        return Ok(());
    }
    let heading = [
        "pixels",
        "threads",
        "step",
        "CPU",
        "PyTorch",
        "CPU",
        "ratio",
        "ratio of CPU",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for (case, rounds) in &all {
        rows.push(row(*case, rounds)?);
    }
    println!(
        "ResNet-50, 8 images a step; PyTorch in the faster of its two memory formats; ratios: median of the \
         rounds [interval of 90 %]"
    );
    if flags.markdown {
        println!();
    }
    print!("{}", table(&rows, flags.markdown));
    Ok(())
}

/// One turn of each.
#[derive(Clone, Debug)]
struct Round {
    ours: Took,
    /// By format; empty without PyTorch.
    theirs: Vec<Took>,
}

impl Round {
    /// PyTorch's least time.
    fn theirs(&self, time: fn(&Took) -> f64) -> Option<f64> {
        self.theirs.iter().map(time).min_by(f64::total_cmp)
    }
}

/// Median, least and most of the rounds' ratios of a time to PyTorch's.
fn ratios(rounds: &[Round], time: fn(&Took) -> f64) -> Option<[f64; 3]> {
    let ratio = |round: &Round| Some(time(&round.ours) / round.theirs(time)?);
    turns::ratios(rounds.iter().map(ratio))
}

/// Wall and processor seconds here and in PyTorch: the median of the rounds.
fn medians(rounds: &[Round]) -> anyhow::Result<[[Option<f64>; 2]; 2]> {
    let times: [fn(&Took) -> f64; 2] = [|took| took.wall, |took| took.cpu];
    anyhow::ensure!(!rounds.is_empty(), "no rounds");
    Ok([
        times.map(|time| median(rounds.iter().map(|round| Some(time(&round.ours))))),
        times.map(|time| median(rounds.iter().map(|round| round.theirs(time)))),
    ])
}

fn row((size, threads): Case, rounds: &[Round]) -> anyhow::Result<[String; 8]> {
    let seconds = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.3} s"));
    let [[wall, cpu], [their_wall, their_cpu]] = medians(rounds)?;
    Ok([
        format!("{size} x {size}"),
        threads.to_string(),
        seconds(wall),
        seconds(cpu),
        seconds(their_wall),
        seconds(their_cpu),
        turns::interval(ratios(rounds, |took| took.wall)),
        turns::interval(ratios(rounds, |took| took.cpu)),
    ])
}

fn line((size, threads): Case, rounds: &[Round]) -> anyhow::Result<Value> {
    let [[wall, cpu], [their_wall, their_cpu]] = medians(rounds)?;
    Ok(json!({
        "kind": "bench",
        "family": "images",
        "name": format!("resnet50 {size} x {size}"),
        "threads": threads,
        "rounds": rounds.len(),
        "median_seconds": wall,
        "cpu_seconds": cpu,
        "peer_seconds": their_wall,
        "peer_cpu_seconds": their_cpu,
        "ratio": ratios(rounds, |took| took.wall),
        "cpu_ratio": ratios(rounds, |took| took.cpu),
    }))
}

/// The flags of a run here.
fn arguments((size, threads): Case) -> Vec<String> {
    let flags = "--model resnet50 --data synthetic --batch-size 8 --micro-batches 1 --stages 1 --optimizer sgd";
    let mut flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    flags.extend(["--image-size".into(), size.to_string()]);
    flags.extend(["--threads".into(), threads.to_string()]);
    flags
}

/// A run of the script.
fn peer(
    shell: &Shell,
    python: &PathBuf,
    script: &Path,
    (size, threads): Case,
    format: &str,
    steps: usize,
) -> anyhow::Result<Took> {
    let [size, threads, steps] = [size, threads, steps].map(|n| n.to_string());
    let output = cmd!(
        shell,
        "{python} {script} --size {size} --threads {threads} --steps {steps} --format {format}"
    );
    let command = output.quiet();
    let (output, _) = calm::measure(|| Ok(command.read()?))?;
    let result: Value = serde_json::from_str(&output).context("the JSON line of resnet.py")?;
    let list = |key: &str| -> Vec<f64> {
        let times = result[key].as_array().into_iter().flatten();
        times.filter_map(Value::as_f64).collect()
    };
    Took::of(&Run {
        seconds: list("seconds"),
        cpu_seconds: list("cpu_seconds"),
        ..Run::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(wall: f64) -> Took {
        Took {
            wall,
            cpu: 2.0 * wall,
        }
    }

    #[test]
    fn ratios_are_to_the_faster_format_of_the_same_round() {
        let rounds = [(1.0, [2.0, 4.0]), (3.0, [4.0, 3.0]), (3.0, [5.0, 4.0])];
        let rounds = rounds.map(|(ours, theirs)| Round {
            ours: took(ours),
            theirs: theirs.map(took).to_vec(),
        });
        assert_eq!(ratios(&rounds, |took| took.wall), Some([0.75, 0.5, 1.0]));
        let row = row((64, 2), &rounds).unwrap().join(", ");
        let ratio = "0.75 [0.50 to 1.00]";
        assert_eq!(
            row,
            format!("64 x 64, 2, 3.000 s, 6.000 s, 3.000 s, 6.000 s, {ratio}, {ratio}")
        );
    }

    #[test]
    fn without_pytorch_there_are_no_ratios() {
        let alone = Round {
            ours: took(1.0),
            theirs: Vec::new(),
        };
        let row = row((64, 1), &[alone]).unwrap().join(", ");
        assert_eq!(row, "64 x 64, 1, 1.000 s, 2.000 s, -, -, -, -");
    }
}
