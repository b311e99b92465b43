//! Every way to train a model on this machine that `gpipe plan --compare` lists: run, beside what was
//! predicted, and how far the planner's choice is from the best.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::configuration::listed;
use super::summary::Summary;
use crate::flags::Bench;

/// Steps that are run and not counted.
const WARM_UP: usize = 1;
/// Ways that are run, in a minute or two, before the layers are measured and the times predicted anew: a
/// machine that is shared is not as fast an hour later.
const AT_ONCE: usize = 20;
/// Of the fastest way's time: what takes longer in the first round is not run in the others.
const WORTH_A_ROUND: f64 = 1.25;

/// One way to train.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    workers: u64,
    /// The flags that mean it, each with its value.
    flags: Vec<String>,
}

/// What became of it.
struct Outcome {
    way: Way,
    /// Seconds of a step: the median of the predictions.
    predicted: f64,
    /// Predicted over measured of the same minutes, the median of the rounds.
    ratio: f64,
    measured: Summary,
    /// Whether every stage held, at its most, as many bytes as were predicted.
    bytes: bool,
    is_pick: bool,
}

/// Measures all of them in turns, and prints them from the fastest.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let model = flags.model.as_deref().unwrap_or("gpt-mini");
    let threads = flags.threads.unwrap_or(2).to_string();
    let (rounds, steps) = (flags.rounds.unwrap_or(2), flags.steps.unwrap_or(3));
    anyhow::ensure!(
        rounds > 0 && steps > 0,
        "rounds and steps must be at least 1"
    );
    let program = program(shell, root)?;
    let place = shell.create_temp_dir()?;
    let _place = shell.push_dir(place.path());
    let common = [
        "--model",
        model,
        "--threads",
        &threads,
        "--devices",
        "cpu*2",
        "--json",
    ];

    eprintln!("plan: {model} on two workers is measured layer by layer");
    let rows = cmd!(shell, "{program} plan {common...} --compare --profile")
        .quiet()
        .read()?;
    let pick = cmd!(shell, "{program} plan {common...} --auto")
        .quiet()
        .read()?;
    let pick = way(&object(&pick, "auto")?)?;
    let mut ways: Vec<Way> = Vec::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).with_context(|| format!("`{line}`"))?;
        if row["kind"] == "compare" && row["partition"] == "balance" && is_asked(&row, flags)? {
            let way = way(&row)?;
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    if !ways.contains(&pick) {
        ways.push(pick.clone());
    }
    let mut runs: Vec<Runs> = ways.into_iter().map(Runs::new).collect();
    for round in 1..=rounds {
        let mut chosen = worth_a_round(&runs, &pick);
        let count = chosen.len();
        for (block, chosen) in chosen.chunks_mut(AT_ONCE).enumerate() {
            if (round, block) != (1, 0) {
                cmd!(shell, "{program} plan {common...} --compare --profile")
                    .quiet()
                    .ignore_stdout()
                    .run()?;
            }
            for (index, run) in chosen.iter().enumerate() {
                let (number, flags) = (block * AT_ONCE + index + 1, runs[*run].way.flags.join(" "));
                eprintln!("round {round} of {rounds}, {number} of {count}: {flags}");
                runs[*run].go(shell, &program, &common[..4], steps)?;
            }
        }
    }
    let outcomes = runs.into_iter().map(|run| run.outcome(&pick));
    let mut outcomes: Vec<Outcome> = outcomes.collect::<anyhow::Result<_>>()?;
    outcomes.sort_by(|a, b| a.measured.median.total_cmp(&b.measured.median));
    if flags.json {
        for outcome in &outcomes {
            println!("{}", json_line(model, outcome));
        }
    } else {
        print!("{}", table(&outcomes));
    }
    Ok(())
}

/// The runs of one way so far.
struct Runs {
    way: Way,
    /// Of each round: predicted, and the median of the measured.
    rounds: Vec<(f64, f64)>,
    measured: Vec<f64>,
    bytes: bool,
}

impl Runs {
    fn new(way: Way) -> Self {
        Self {
            way,
            rounds: Vec::new(),
            measured: Vec::new(),
            bytes: true,
        }
    }

    /// Predicts by the profile that is there, and runs so many steps.
    fn go(
        &mut self,
        shell: &Shell,
        program: &Path,
        common: &[&str],
        steps: usize,
    ) -> anyhow::Result<()> {
        let own = &self.way.flags;
        let plan = cmd!(shell, "{program} plan {common...} {own...} --json").quiet();
        let plan = object(&plan.read()?, "plan")?;
        let predicted = plan["step_seconds"].as_f64().context("no step_seconds")?;
        let all = (steps + WARM_UP).to_string();
        let output = cmd!(
            shell,
            "{program} train {common...} {own...} --steps {all} --keep 0 --trace-steps 0
             --out run --overwrite --json --quiet"
        );
        let mut measured = Vec::new();
        for line in output.quiet().read()?.lines() {
            let step: Value = serde_json::from_str(line)?;
            if step["kind"] == "step" && step["step"].as_u64() > Some(WARM_UP as u64) {
                measured.extend(step["step_seconds"].as_f64());
                self.bytes &= step["peak_bytes"] == plan["peak_bytes"];
            }
        }
        let median = Summary::of(&measured)
            .context("a run without steps")?
            .median;
        self.rounds.push((predicted, median));
        self.measured.extend(measured);
        Ok(())
    }

    fn median(&self) -> f64 {
        Summary::of(&self.measured).map_or(f64::INFINITY, |measured| measured.median)
    }

    fn outcome(self, pick: &Way) -> anyhow::Result<Outcome> {
        let median = |of_round: fn(&(f64, f64)) -> f64| {
            let all: Vec<f64> = self.rounds.iter().map(of_round).collect();
            Some(Summary::of(&all)?.median)
        };
        let never = "a way that was never run";
        Ok(Outcome {
            predicted: median(|&(predicted, _)| predicted).context(never)?,
            ratio: median(|&(predicted, measured)| predicted / measured).context(never)?,
            measured: Summary::of(&self.measured).context(never)?,
            bytes: self.bytes,
            is_pick: self.way == *pick,
            way: self.way,
        })
    }
}

/// Which ways the next round takes: all in the first, then those that may be the fastest.
fn worth_a_round(runs: &[Runs], pick: &Way) -> Vec<usize> {
    let fastest = runs.iter().map(Runs::median).fold(f64::INFINITY, f64::min);
    let wanted = |run: &Runs| {
        run.rounds.is_empty() || run.way == *pick || run.median() <= WORTH_A_ROUND * fastest
    };
    (0..runs.len()).filter(|&i| wanted(&runs[i])).collect()
}

/// The program, optimized.
fn program(shell: &Shell, root: &Path) -> anyhow::Result<PathBuf> {
    cmd!(shell, "cargo build --release -p gpipe-cli").run()?;
    let metadata = cmd!(shell, "cargo metadata --no-deps --format-version 1")
        .quiet()
        .read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("cargo metadata names no target folder")?;
    Ok(root.join(target).join("release").join("gpipe"))
}

/// The one object of a kind.
fn object(output: &str, kind: &str) -> anyhow::Result<Value> {
    let objects = output.lines().map(serde_json::from_str::<Value>);
    let mut found = objects
        .filter_map(Result::ok)
        .filter(|object| object["kind"] == kind);
    found
        .next()
        .with_context(|| format!("gpipe printed no {kind}: {output}"))
}

/// Whether a row is among what was asked for.
fn is_asked(row: &Value, flags: &Bench) -> anyhow::Result<bool> {
    let text = |key: &str| match &row[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let stages = row["cut"].as_array().map_or(0, Vec::len).to_string();
    let asked = [
        (&flags.stages, stages),
        (&flags.micro_batches, text("micro_batches")),
        (&flags.schedules, text("schedule")),
        (&flags.remat, text("remat")),
    ];
    Ok(asked.iter().all(|(list, value)| {
        list.as_ref()
            .is_none_or(|list| listed(list).contains(value))
    }))
}

/// The flags of a plan, from an object of `--auto` or `--compare`.
fn way(row: &Value) -> anyhow::Result<Way> {
    let text = |key: &str| {
        row[key]
            .as_str()
            .with_context(|| format!("no {key} in {row}"))
    };
    let number = |key: &str| {
        row[key]
            .as_u64()
            .with_context(|| format!("no {key} in {row}"))
    };
    let cut = row["cut"].as_array().context("no cut")?;
    let sizes: Vec<String> = cut.iter().map(Value::to_string).collect();
    // A list of each, or their number.
    let workers = match row["workers"].as_array() {
        Some(list) => list.len() as u64,
        None => number("workers")?,
    };
    let (stages, micro_batches) = (
        sizes.len().to_string(),
        number("micro_batches")?.to_string(),
    );
    let flags = [
        ("--stages", stages),
        ("--micro-batches", micro_batches),
        ("--schedule", text("schedule")?.to_owned()),
        ("--remat", text("remat")?.to_owned()),
        ("--partition", sizes.join(",")),
    ];
    let flags = flags
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value]);
    Ok(Way {
        workers,
        flags: flags.collect(),
    })
}

fn json_line(model: &str, outcome: &Outcome) -> Value {
    serde_json::json!({
        "kind": "bench",
        "family": "plan",
        "model": model,
        "workers": outcome.way.workers,
        "flags": outcome.way.flags,
        "predicted_seconds": outcome.predicted,
        "predicted_over_measured": outcome.ratio,
        "median_seconds": outcome.measured.median,
        "min_seconds": outcome.measured.min,
        "spread": outcome.measured.spread,
        "steps": outcome.measured.count,
        "bytes_as_predicted": outcome.bytes,
        "pick": outcome.is_pick,
    })
}

/// A line for each, the fastest first, and what follows from them.
fn table(outcomes: &[Outcome]) -> String {
    let mut order: Vec<usize> = (0..outcomes.len()).collect();
    order.sort_by(|&a, &b| outcomes[a].predicted.total_cmp(&outcomes[b].predicted));
    let predicted_rank = |index: usize| order.iter().position(|&i| i == index).unwrap_or(0) + 1;
    let best = outcomes
        .first()
        .map_or(f64::NAN, |best| best.measured.median);
    let mut text = "rank  planned  workers  measured s  predicted s  ratio  bytes\n".to_owned();
    let (mut ratios, mut equal) = (Vec::new(), 0);
    for (index, outcome) in outcomes.iter().enumerate() {
        let ratio = outcome.ratio;
        ratios.push(ratio);
        equal += usize::from(outcome.bytes);
        text += &format!(
            "{:>4}  {:>7}  {:>7}  {:>10.4}  {:>11.4}  {ratio:>5.3}  {:<5}  {}{}\n",
            index + 1,
            predicted_rank(index),
            outcome.way.workers,
            outcome.measured.median,
            outcome.predicted,
            if outcome.bytes { "equal" } else { "not" },
            outcome.way.flags.join(" "),
            if outcome.is_pick {
                "  < the planner's"
            } else {
                ""
            },
        );
    }
    ratios.sort_by(f64::total_cmp);
    let within = ratios.iter().filter(|&&r| (r - 1.0).abs() <= 0.1).count();
    let at = |tenths: usize| ratios[(ratios.len() - 1) * tenths / 10];
    if !ratios.is_empty() {
        text += &format!(
            "predicted over measured: {:.3}, {:.3}, {:.3} at the 10th, 50th and 90th percentile, \
             {within} of {} within 10 %; bytes equal in {equal}\n",
            at(1),
            at(5),
            at(9),
            ratios.len(),
        );
    }
    for pick in outcomes.iter().filter(|outcome| outcome.is_pick) {
        text += &format!(
            "the planner's choice takes {:.1} % more than the best of all\n",
            100.0 * (pick.measured.median / best - 1.0)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plans_become_flags() {
        let auto = json!({"workers": [0, 1], "micro_batches": 8, "schedule": "1f1b", "remat": "keep", "cut": [3, 4]});
        let compare = json!({"workers": 2, "micro_batches": 8, "schedule": "1f1b", "remat": "keep", "cut": [3, 4]});
        let made = way(&auto).unwrap();
        assert_eq!(made, way(&compare).unwrap());
        assert_eq!(
            made.flags.join(" "),
            "--stages 2 --micro-batches 8 --schedule 1f1b --remat keep --partition 3,4"
        );
        assert!(way(&json!({"workers": 2})).is_err());
    }

    #[test]
    fn the_choice_is_compared_with_the_best() {
        let outcome = |seconds: f64, predicted, is_pick| Outcome {
            way: Way {
                workers: 2,
                flags: vec!["--stages".into(), "2".into()],
            },
            predicted,
            ratio: predicted / seconds,
            measured: Summary::of(&[seconds]).unwrap(),
            bytes: true,
            is_pick,
        };
        let table = table(&[outcome(1.0, 1.05, false), outcome(1.04, 1.0, true)]);
        assert!(table.contains("takes 4.0 % more than the best"), "{table}");
        assert!(
            table.contains("2 of 2 within 10 %; bytes equal in 2"),
            "{table}"
        );
        let second = table.lines().nth(2).unwrap();
        assert!(
            second.starts_with("   2        1        2      1.0400       1.0000  0.962  equal"),
            "{second}"
        );
    }
}
