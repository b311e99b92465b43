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
    predicted: f64,
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
    let mut measured = vec![Vec::new(); ways.len()];
    let mut known = Vec::new();
    for way in &ways {
        let (own, common) = (&way.flags, &common[..4]);
        let plan = cmd!(shell, "{program} plan {common...} {own...} --json")
            .quiet()
            .read()?;
        known.push(object(&plan, "plan")?);
    }
    let mut bytes = vec![true; ways.len()];
    for round in 1..=rounds {
        for (index, way) in ways.iter().enumerate() {
            eprintln!(
                "round {round} of {rounds}, {} of {}: {}",
                index + 1,
                ways.len(),
                way.flags.join(" ")
            );
            let (own, common) = (&way.flags, &common[..4]);
            let all = (steps + WARM_UP).to_string();
            let output = cmd!(
                shell,
                "{program} train {common...} {own...} --steps {all} --keep 0 --trace-steps 0
                 --out run --overwrite --json --quiet"
            );
            for line in output.quiet().read()?.lines() {
                let step: Value = serde_json::from_str(line)?;
                if step["kind"] == "step" && step["step"].as_u64() > Some(WARM_UP as u64) {
                    measured[index].extend(step["step_seconds"].as_f64());
                    bytes[index] &= step["peak_bytes"] == known[index]["peak_bytes"];
                }
            }
        }
    }
    let mut outcomes = Vec::new();
    for (index, way) in ways.into_iter().enumerate() {
        outcomes.push(Outcome {
            predicted: known[index]["step_seconds"]
                .as_f64()
                .context("no step_seconds")?,
            measured: Summary::of(&measured[index]).context("a run without steps")?,
            bytes: bytes[index],
            is_pick: way == pick,
            way,
        });
    }
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
        let ratio = outcome.predicted / outcome.measured.median;
        ratios.push((ratio - 1.0).abs());
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
    let within = ratios.iter().filter(|&&off| off <= 0.1).count();
    text += &format!(
        "predicted step times: median {:.1} % off, {within} of {} within 10 %; bytes equal in {equal}\n",
        100.0 * ratios.get(ratios.len() / 2).copied().unwrap_or(0.0),
        outcomes.len(),
    );
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
