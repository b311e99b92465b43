//! Whole runs of the program, in turns, so that a busy minute falls on all of them.

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::baseline;
use super::configuration::{Configuration, configurations};
use super::model::{MODELS, Model};
use super::peer::Peer;
use super::report::{Measured, drawn, json_line};
use super::summary::Summary;
use crate::flags::Bench;

/// Steps that are run and not counted.
const WARM_UP: usize = 2;

/// Measures every configuration and prints what came out.
pub fn run(shell: &Shell, flags: &Bench) -> anyhow::Result<()> {
    let name = flags.model.as_deref().unwrap_or("bench-a");
    let model = MODELS.iter().find(|model| model.name == name);
    let model =
        model.with_context(|| format!("no model {name} to measure: use bench-a or bench-b"))?;
    let threads = flags.threads.unwrap_or(2);
    let rounds = flags.rounds.unwrap_or(3);
    let steps = flags.steps.unwrap_or(6);
    anyhow::ensure!(
        threads > 0 && rounds > 0 && steps > 0,
        "threads, rounds and steps must be at least 1"
    );
    let configurations = configurations(flags)?;
    let peer = flags.peers.clone().map(|folder| Peer {
        folder,
        python: flags.python.clone().unwrap_or_else(|| "python3".into()),
        config: model.peer,
    });

    cmd!(shell, "cargo build --release -p gpipe-cli").run()?;
    let baseline = flags.baseline.as_deref().map(baseline::read).transpose()?;
    let mut ours = vec![Run::default(); configurations.len()];
    let mut theirs = Vec::new();
    for round in 1..=rounds {
        for (configuration, all) in configurations.iter().zip(&mut ours) {
            eprintln!("round {round} of {rounds}: {configuration}");
            let run = train(shell, model, configuration, threads, steps)?;
            all.seconds.extend(run.seconds);
            all.resident = all.resident.max(run.resident);
        }
        if let Some(peer) = &peer {
            eprintln!("round {round} of {rounds}: PyTorch");
            theirs.push(peer.run(shell, threads, steps)?);
        }
    }
    let theirs = Summary::of(&theirs);
    let ours = configurations
        .iter()
        .zip(&ours)
        .map(|(configuration, run)| {
            let summary = Summary::of(&run.seconds)
                .with_context(|| format!("{configuration} measured nothing"))?;
            Ok(Measured {
                configuration,
                summary,
                resident: run.resident,
            })
        });
    let ours = ours.collect::<anyhow::Result<Vec<_>>>()?;
    let lines: Vec<Value> = ours
        .iter()
        .map(|measured| json_line(model, threads, measured, theirs.as_ref()))
        .collect();
    if flags.json {
        lines.iter().for_each(|line| println!("{line}"));
    } else {
        let drawn = drawn(model, threads, &ours, theirs.as_ref(), flags.markdown);
        print!("{drawn}");
    }
    let slower = baseline::slower(&baseline.unwrap_or_default(), &lines);
    anyhow::ensure!(
        slower.is_empty(),
        "slower than the baseline:\n{}",
        slower.join("\n")
    );
    Ok(())
}

/// What one or several runs took.
#[derive(Clone, Default)]
struct Run {
    /// Of the measured steps.
    seconds: Vec<f64>,
    /// The most memory that the process had, where that is known.
    resident: Option<u64>,
}

/// Runs a configuration once.
fn train(
    shell: &Shell,
    model: &Model,
    configuration: &Configuration,
    threads: usize,
    steps: usize,
) -> anyhow::Result<Run> {
    let folder = shell.create_temp_dir()?;
    let out = folder.path().join("run");
    let Configuration {
        stages,
        micro_batches,
        schedule,
        remat,
    } = configuration;
    let sizes = [stages, micro_batches, &threads, &(steps + WARM_UP)].map(usize::to_string);
    let [stages, micro_batches, threads, steps] = &sizes;
    let name = model.name;
    let output = cmd!(
        shell,
        "cargo run --release --quiet -p gpipe-cli -- train --model {name} --stages {stages}
         --micro-batches {micro_batches} --schedule {schedule} --remat {remat} --threads {threads}
         --steps {steps} --eval-every 0 --out {out} --json --quiet"
    );
    let seconds = step_seconds(&output.quiet().read()?)?;
    let events = shell.read_file(out.join("events.jsonl"))?;
    Ok(Run {
        seconds,
        resident: peak_resident(&events),
    })
}

/// What the last event says of the process's memory.
fn peak_resident(events: &str) -> Option<u64> {
    let end: Value = serde_json::from_str(events.lines().last()?).ok()?;
    end["peak_resident_bytes"].as_u64()
}

/// The `step_seconds` of the JSON lines of kind `step`, after those that warm up.
fn step_seconds(output: &str) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::new();
    for line in output.lines() {
        let object: Value =
            serde_json::from_str(line).with_context(|| format!("gpipe printed `{line}`"))?;
        if object["kind"] == "step" {
            seconds.push(
                object["step_seconds"]
                    .as_f64()
                    .context("a step without step_seconds")?,
            );
        }
    }
    anyhow::ensure!(
        seconds.len() > WARM_UP,
        "gpipe reported {} steps",
        seconds.len()
    );
    Ok(seconds.split_off(WARM_UP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_times_are_read_after_the_warm_up() {
        let step = |seconds: f64| format!("{{\"kind\":\"step\",\"step_seconds\":{seconds}}}\n");
        let plan = "{\"kind\":\"plan\",\"step_seconds\":9}\n";
        let output = [plan, &step(5.0), &step(4.0), &step(1.5), &step(2.5)].concat();
        assert_eq!(step_seconds(&output).unwrap(), [1.5, 2.5]);
        assert!(step_seconds(&[plan, &step(5.0), &step(4.0)].concat()).is_err());
        assert!(step_seconds("no json").is_err());
        let events = "{\"kind\":\"step\"}\n{\"kind\":\"end\",\"peak_resident_bytes\":7}\n";
        assert_eq!(peak_resident(events), Some(7));
        assert_eq!(peak_resident(""), None);
    }
}
