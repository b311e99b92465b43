//! The experiment of the article that began this project: a ResNet-50 in one piece, naively over two workers, and
//! pipelined over several split sizes, beside what the simulator predicts.
//!
//! A worker is one thread. In one piece and naively one worker computes at a time, so both run on one thread; a
//! pipeline has as many threads as workers. The prediction counts FLOPs and bytes and knows no machine: its times are
//! scaled by one number for all rows, with which that of the model in one piece is the measured one.

mod picture;

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::runs::{self, Run};
use super::summary::Summary;
use super::sweep::program;
use super::sweep::way::object;
use super::table::table;
use crate::flags::Bench;
use picture::picture;

/// Height and width of the images, and how many of them are a batch.
const SIZE: usize = 64;
const BATCH: usize = 32;
/// Workers of the pipeline and of the naive run.
const WORKERS: usize = 2;
/// Numbers of micro-batches of the pipelined runs.
const SPLITS: [usize; 4] = [2, 4, 8, 16];
/// Plans of each way.
const PLANS: usize = 5;

/// One bar of the picture.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    name: String,
    stages: usize,
    micro_batches: usize,
    threads: usize,
}

impl Way {
    fn all() -> Vec<Self> {
        let way = |name: String, stages, micro_batches, threads| Self {
            name,
            stages,
            micro_batches,
            threads,
        };
        let mut all = vec![
            way("one piece".into(), 1, 1, 1),
            way("naive".into(), WORKERS, 1, 1),
        ];
        let pipelined = SPLITS.map(|parts| {
            let name = format!("split size {}", BATCH / parts);
            way(name, WORKERS, parts, WORKERS)
        });
        all.extend(pipelined);
        all
    }

    /// Nothing is recomputed, as in the article.
    fn arguments(&self) -> Vec<String> {
        let flags =
            "--model resnet50 --data synthetic --optimizer sgd --schedule gpipe --remat keep";
        let mut flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
        for (flag, value) in [
            ("--image-size", SIZE),
            ("--batch-size", BATCH),
            ("--stages", self.stages),
            ("--micro-batches", self.micro_batches),
            ("--threads", self.threads),
        ] {
            flags.extend([flag.to_owned(), value.to_string()]);
        }
        flags
    }
}

/// What a way took, and the simulated time of its step.
#[derive(Clone, Debug)]
struct Found {
    way: Way,
    took: Summary,
    /// Scaled to the measured time of the model in one piece.
    predicted: f64,
}

/// Measures all ways, in turns, prints a table and draws a picture.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let (rounds, steps) = (flags.rounds.unwrap_or(3), flags.steps.unwrap_or(3));
    anyhow::ensure!(
        rounds > 0 && steps > 0,
        "rounds and steps must be at least 1"
    );
    let program = program(shell, root)?;
    let ways = Way::all();
    let mut took = vec![Run::default(); ways.len()];
    for round in 1..=rounds {
        for (way, all) in ways.iter().zip(&mut took) {
            eprintln!("tutorial: round {round} of {rounds}, {}", way.name);
            all.add(runs::train(shell, &way.arguments(), steps)?);
        }
    }
    // Each plan measures the speed of the machine anew: the least of several is that of an idle one.
    let predicted = |way: &Way| {
        let mut least = f64::INFINITY;
        for _ in 0..PLANS {
            let arguments = way.arguments();
            let said = cmd!(shell, "{program} plan --json {arguments...}");
            let seconds = object(&said.quiet().read()?, "plan")?["step_seconds"].as_f64();
            least = least.min(seconds.context("no step_seconds")?);
        }
        Ok(least)
    };
    let predicted: Vec<f64> = ways.iter().map(predicted).collect::<anyhow::Result<_>>()?;
    let found = compared(ways, &took, &predicted)?;
    if flags.json {
        found
            .iter()
            .for_each(|one| println!("{}", line(one, &found)));
    } else {
        println!(
            "ResNet-50, {BATCH} images of {SIZE} x {SIZE} pixels a step, {WORKERS} workers of one thread"
        );
        print!("{}", table(&rows(&found), flags.markdown));
        println!("{}", best(&found));
    }
    let folder = program.parent().and_then(Path::parent);
    let path = folder.unwrap_or(root).join("tutorial.svg");
    shell.write_file(&path, picture(&bars(&found)))?;
    eprintln!("tutorial: picture in {}", path.display());
    Ok(())
}

fn compared(ways: Vec<Way>, took: &[Run], predicted: &[f64]) -> anyhow::Result<Vec<Found>> {
    let summaries = took.iter().map(|run| Summary::of(&run.seconds));
    let summaries: Option<Vec<Summary>> = summaries.collect();
    let summaries = summaries.context("a run reported no times")?;
    let scale = summaries[0].median / predicted[0];
    let all = ways.into_iter().zip(summaries).zip(predicted);
    let all = all.map(|((way, took), predicted)| Found {
        way,
        took,
        predicted: predicted * scale,
    });
    Ok(all.collect())
}

/// The fastest ways by both.
fn best(found: &[Found]) -> String {
    let least = |seconds: fn(&Found) -> f64| {
        let least = found
            .iter()
            .min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        least.map_or("", |one| one.way.name.as_str())
    };
    let measured = least(|one| one.took.median);
    format!(
        "fastest: {measured}; predicted: {}",
        least(|one| one.predicted)
    )
}

fn rows(found: &[Found]) -> Vec<[String; 6]> {
    let heading = [
        "",
        "micro-batches",
        "step",
        "speed-up",
        "predicted",
        "speed-up",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    let first = &found[0];
    rows.extend(found.iter().map(|one| {
        [
            one.way.name.clone(),
            one.way.micro_batches.to_string(),
            format!("{:.3} s ± {:.0} %", one.took.median, 50.0 * one.took.spread),
            format!("{:.2}", first.took.median / one.took.median),
            format!("{:.3} s", one.predicted),
            format!("{:.2}", first.predicted / one.predicted),
        ]
    }));
    rows
}

fn line(one: &Found, found: &[Found]) -> Value {
    json!({
        "kind": "bench",
        "family": "tutorial",
        "name": one.way.name,
        "stages": one.way.stages,
        "micro_batches": one.way.micro_batches,
        "threads": one.way.threads,
        "median_seconds": one.took.median,
        "min_seconds": one.took.min,
        "spread": one.took.spread,
        "predicted_seconds": one.predicted,
        "speed_up": found[0].took.median / one.took.median,
        "predicted_speed_up": found[0].predicted / one.predicted,
    })
}

/// Name, measured and predicted seconds of each bar.
fn bars(found: &[Found]) -> Vec<(String, [f64; 2])> {
    let bar = |one: &Found| (one.way.name.clone(), [one.took.median, one.predicted]);
    found.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_scaled_to_the_model_in_one_piece() {
        let ways = Way::all();
        assert_eq!(ways.len(), 2 + SPLITS.len());
        let line = ways[3].arguments().join(" ");
        assert!(
            line.ends_with(
                "--image-size 64 --batch-size 32 --stages 2 --micro-batches 4 --threads 2"
            )
        );
        let took = [4.0, 4.0, 3.0, 2.0, 2.5, 3.0].map(|seconds| Run {
            seconds: vec![seconds],
            ..Run::default()
        });
        let predicted = [8.0, 8.0, 7.0, 6.0, 5.0, 5.5];
        let found = compared(ways, &took, &predicted).unwrap();
        assert_eq!(found[3].predicted, 3.0);
        assert_eq!(
            best(&found),
            "fastest: split size 8; predicted: split size 4"
        );
        let row = rows(&found)[4].join(", ");
        assert_eq!(row, "split size 8, 4, 2.000 s ± 0 %, 2.00, 3.000 s, 1.33");
        let drawn = picture(&bars(&found));
        assert_eq!(drawn.matches("<rect").count(), 1 + 2 * 6 + 2);
        assert!(drawn.contains("split size 8") && drawn.ends_with("</svg>\n"));
    }
}
