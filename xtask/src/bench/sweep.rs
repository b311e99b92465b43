//! Every way to train a model on this machine that `gpipe plan --compare` lists: run, beside what was
//! predicted, and how far the planner's choice is from the best.
//!
//! A machine that is shared is not as fast an hour later, and a run of a few steps says little: so the
//! first round runs all ways, and each of the next those that may still be the fastest, in the other
//! order. What is said of them is the median of their rounds.

mod verdict;
pub mod way;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::distance::{self, Distance};
use super::summary::Summary;
use crate::flags::Bench;
use verdict::{Round, Runs, Verdict};
use way::{Way, is_asked, object, way};

/// Steps that are run and not counted.
const WARM_UP: usize = 1;
/// Ways that are run, in a minute or less, before the layers are measured and the times predicted anew.
const AT_ONCE: usize = 20;
/// Of the fastest way's time so far: what takes longer is not run in the second round, the third and so
/// on; the last number is for all that follow.
const WORTH_A_ROUND: [f64; 3] = [1.15, 1.08, 1.05];

/// Measures all of them in turns, and prints them from the fastest.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let model = flags.model.as_deref().unwrap_or("gpt-mini");
    let threads = flags.threads.unwrap_or(2).to_string();
    let (rounds, steps) = (flags.rounds.unwrap_or(5), flags.steps.unwrap_or(2));
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
    let profile = || {
        distance::measure(|| {
            let command = cmd!(shell, "{program} plan {common...} --compare --profile");
            Ok(command.quiet().read()?)
        })
    };
    let (rows, mut profiled) = profile()?;
    let pick = cmd!(shell, "{program} plan {common...} --auto")
        .quiet()
        .read()?;
    let pick = way(&object(&pick, "auto")?)?;
    let mut runs: Vec<Runs> = Vec::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).with_context(|| format!("`{line}`"))?;
        if row["kind"] == "compare" && row["partition"] == "balance" && is_asked(&row, flags)? {
            let way = way(&row)?;
            let seconds = row["step_seconds"].as_f64().context("no step_seconds")?;
            // The same layers in the same order by another name take exactly as long on paper.
            let same = |run: &Runs| run.way.is_cut_like(&way) && run.on_paper == seconds;
            let work = runs
                .iter()
                .find(|run| same(run))
                .map_or(runs.len(), |run| run.work);
            if runs.iter().all(|run| run.way != way) {
                runs.push(Runs::new(way, work, seconds));
            }
        }
    }
    if runs.iter().all(|run| run.way != pick) {
        runs.push(Runs::new(pick.clone(), runs.len(), f64::NAN));
    }
    let mut pick_first = |run: &Runs| run.way != pick;
    runs.sort_by_key(&mut pick_first);
    for round in 1..=rounds {
        let chosen = worth_a_round(&runs, round);
        let count = chosen.len();
        for (block, chosen) in chosen.chunks(AT_ONCE).enumerate() {
            if (round, block) != (1, 0) {
                (_, profiled) = profile()?;
            }
            for (index, run) in chosen.iter().enumerate() {
                let (number, flags) = (block * AT_ONCE + index + 1, runs[*run].way.flags.join(" "));
                eprintln!("round {round} of {rounds}, {number} of {count}: {flags}");
                let way = &runs[*run].way;
                let ((predicted, measured, bytes), _) = distance::measure(|| {
                    // What layers took where the processors lay says nothing of where they lie.
                    if !profiled.is_like(Distance::now()) {
                        (_, profiled) = profile()?;
                    }
                    go(shell, &program, &common[..4], way, steps)
                })?;
                runs[*run].rounds.push(Round {
                    round,
                    predicted,
                    measured,
                });
                runs[*run].bytes &= bytes;
            }
        }
    }
    let verdict = Verdict::of(&runs)?;
    if flags.json {
        for line in verdict.json(model) {
            println!("{line}");
        }
    } else {
        print!("{verdict}");
    }
    Ok(())
}

/// Predicts by the profile that is there, and runs a number of steps: the seconds that were predicted of one
/// and the median of those that were measured, and whether every stage held, at its most, as many bytes
/// as were predicted.
fn go(
    shell: &Shell,
    program: &Path,
    common: &[&str],
    way: &Way,
    steps: usize,
) -> anyhow::Result<(f64, f64, bool)> {
    let own = &way.flags;
    let plan = cmd!(shell, "{program} plan {common...} {own...} --json").quiet();
    let plan = object(&plan.read()?, "plan")?;
    let predicted = plan["step_seconds"].as_f64().context("no step_seconds")?;
    let all = (steps + WARM_UP).to_string();
    let output = cmd!(
        shell,
        "{program} train {common...} {own...} --steps {all} --keep 0 --trace-steps 0
         --out run --overwrite --json --quiet"
    );
    let (mut measured, mut bytes) = (Vec::new(), true);
    for line in output.quiet().read()?.lines() {
        let step: Value = serde_json::from_str(line)?;
        if step["kind"] == "step" && step["step"].as_u64() > Some(WARM_UP as u64) {
            measured.extend(step["step_seconds"].as_f64());
            bytes &= step["peak_bytes"] == plan["peak_bytes"];
        }
    }
    let summary = Summary::of(&measured).context("a run without steps")?;
    Ok((predicted, summary.median, bytes))
}

/// Which ways a round takes: all in the first, then those that may be the fastest, and always the first,
/// the planner's. Of those that do the same work one is enough.
fn worth_a_round(runs: &[Runs], round: usize) -> Vec<usize> {
    let Some(place) = round.checked_sub(2) else {
        return (0..runs.len()).collect();
    };
    let worth = WORTH_A_ROUND[place.min(WORTH_A_ROUND.len() - 1)];
    let seconds = verdict::seconds(runs);
    let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let is_first = |index: usize| {
        let work = runs[index].work;
        runs.iter().position(|run| run.work == work) == Some(index)
    };
    let wanted =
        |&index: &usize| is_first(index) && (index == 0 || seconds[index] <= worth * fastest);
    let mut chosen: Vec<usize> = (0..runs.len()).filter(wanted).collect();
    if round.is_multiple_of(2) {
        chosen.reverse();
    }
    chosen
}

/// Builds the program, optimized, and returns its path.
pub fn program(shell: &Shell, root: &Path) -> anyhow::Result<PathBuf> {
    cmd!(shell, "cargo build --release").run()?;
    let metadata = cmd!(shell, "cargo metadata --no-deps --format-version 1")
        .quiet()
        .read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("cargo metadata names no target folder")?;
    Ok(root.join(target).join("release").join("gpipe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_narrow_and_keep_the_choice() {
        let run = |work, seconds: f64| {
            let way = Way {
                workers: 2,
                flags: vec![format!("{seconds}")],
            };
            let mut run = Runs::new(way, work, 0.0);
            let (predicted, measured) = (1.0, seconds);
            run.rounds.push(Round {
                round: 1,
                predicted,
                measured,
            });
            run
        };
        let runs = [
            run(0, 2.0),
            run(1, 1.0),
            run(2, 1.14),
            run(1, 1.01),
            run(4, 1.07),
        ];
        assert_eq!(worth_a_round(&runs, 1), [0, 1, 2, 3, 4]);
        assert_eq!(worth_a_round(&runs, 2), [4, 2, 1, 0]);
        assert_eq!(worth_a_round(&runs, 3), [0, 1, 4]);
        assert_eq!(worth_a_round(&runs, 9), [0, 1]);
    }
}
