//! Whole runs of the program, in turns, so that a busy minute falls on all of them.

use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::baseline;
use super::configuration::{Configuration, configurations};
use super::distance;
use super::measured::Measured;
use super::model::MODELS;
use super::peak::Peak;
use super::peer::Peer;
use super::report::Report;
use super::runs::{self, Run};
use super::summary::Summary;
use super::turns::{self, Took};
use crate::flags::Bench;

/// Measures every configuration and prints what came out.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let name = flags.model.as_deref().unwrap_or("bench-a");
    let model = MODELS.iter().find(|model| model.name == name);
    let model = model.with_context(|| {
        format!("no model {name} to measure: use bench-a, bench-b or bench-tiny")
    })?;
    let dtype = flags.dtype.as_deref().unwrap_or("f32");
    anyhow::ensure!(
        matches!(dtype, "f32" | "bf16"),
        "no precision {dtype} to measure: use f32 or bf16"
    );
    let threads = flags.threads.unwrap_or(2);
    let rounds = flags.rounds.unwrap_or(3);
    let steps = flags.steps.unwrap_or(6);
    anyhow::ensure!(
        threads > 0 && rounds > 0 && steps > 0,
        "threads, rounds and steps must be at least 1"
    );
    let configurations = configurations(flags)?;
    let python = flags.python.as_deref();
    let python = python.filter(|python| turns::has_modules(shell, python, &["torch"], "training"));
    let peer = python.map(|python| Peer::new(root, python, model.name, dtype));
    if peer.is_some() {
        let uneven = configurations
            .iter()
            .filter_map(|way| Peer::uneven(way, threads));
        uneven.for_each(|note| eprintln!("note: {note}"));
    }

    cmd!(shell, "cargo build --release").run()?;
    // What the peak is measured with, which takes minutes to build, where it would be built in silence.
    cmd!(
        shell,
        "cargo build --release -p gpipe-tensor --example peak"
    )
    .run()?;
    let baseline = flags.baseline.as_deref().map(baseline::read).transpose()?;
    let mut peak = Peak::measure(shell, threads)?;
    let mut ours = vec![Run::default(); configurations.len()];
    let mut theirs = vec![Run::default(); configurations.len()];
    let mut single = Run::default();
    let mut ratios = vec![Vec::new(); configurations.len()];
    for round in 1..=rounds {
        for group in groups(&configurations) {
            let alike = &configurations[group.clone()];
            let train = || -> anyhow::Result<Vec<Run>> {
                let run = |configuration: &Configuration| {
                    eprintln!("round {round} of {rounds}: {configuration}");
                    let arguments = arguments(model.name, dtype, configuration, threads);
                    runs::train(shell, &arguments, steps)
                };
                alike.iter().map(run).collect()
            };
            let pytorch = || -> anyhow::Result<Option<Theirs>> {
                let Some(peer) = &peer else { return Ok(None) };
                eprintln!("round {round} of {rounds}: PyTorch, {} and alike", alike[0]);
                Theirs::measure(peer, shell, alike, threads, steps).map(Some)
            };
            // Who goes first changes, so that a drift of the machine's speed favours nobody.
            let ((found, peers), distance) = distance::measure(|| {
                if round % 2 == 1 {
                    let peers = pytorch()?;
                    Ok((train()?, peers))
                } else {
                    Ok((train()?, pytorch()?))
                }
            })?;
            eprintln!("round {round} of {rounds}: processors {distance}");
            for (index, run) in group.zip(found) {
                ours[index].add(run.clone());
                let of = &configurations[index];
                let wall = Took::wall_of(&run)?;
                // A run that is cut off leaves the rounds that it has measured.
                let mut line = format!("round {round} of {rounds}: {of}: {wall:.3} s");
                if let Some(peers) = &peers {
                    if let Some(pipelined) = peers.pipelined(of) {
                        theirs[index].add(pipelined.clone());
                    }
                    if let Some(peer) = peers.pipelined(of).or(peers.single.as_ref()) {
                        let theirs = Took::wall_of(peer)?;
                        line += &format!(", PyTorch {theirs:.3} s, ratio {:.2}", wall / theirs);
                        ratios[index].push(wall / theirs);
                        ours[index].others = ours[index].others.worse(peer.others);
                    }
                }
                eprintln!("{line}");
            }
            peers
                .and_then(|peers| peers.single)
                .into_iter()
                .for_each(|run| single.add(run));
        }
        peak = peak.max(Peak::measure(shell, threads)?);
    }
    let measured = configurations.iter().zip(ours.iter().zip(&theirs));
    let measured = measured.zip(&ratios);
    let measured = measured.map(|((configuration, (ours, theirs)), ratios)| {
        Measured::of(configuration, ours, theirs, ratios)
            .with_context(|| format!("{configuration} measured nothing"))
    });
    let report = Report {
        model,
        dtype,
        threads,
        peak,
        measured: measured.collect::<anyhow::Result<_>>()?,
        single: Summary::of(&single.seconds),
    };
    let lines: Vec<Value> = report.json_lines();
    if flags.json {
        lines.iter().for_each(|line| println!("{line}"));
    } else {
        print!("{}", report.drawn(flags.markdown));
    }
    let Some(baseline) = baseline else {
        return Ok(());
    };
    let slower = baseline::slower(&baseline, &lines)?;
    anyhow::ensure!(
        slower.is_empty(),
        "slower than the baseline:\n{}",
        slower.join("\n")
    );
    Ok(())
}

/// PyTorch's turn beside some configurations that differ in their micro-batches alone.
struct Theirs {
    /// One process, where one of them has no like in `torch.distributed.pipelining`.
    single: Option<Run>,
    pipelined: Vec<(usize, Run)>,
}

impl Theirs {
    fn measure(
        peer: &Peer<'_>,
        shell: &Shell,
        alike: &[Configuration],
        threads: usize,
        steps: usize,
    ) -> anyhow::Result<Self> {
        let (can, cannot): (Vec<_>, Vec<_>) = alike.iter().partition(|way| Peer::can(way));
        let single = match cannot.is_empty() {
            true => None,
            false => Some(peer.single(shell, threads, steps)?),
        };
        let runs = peer.pipelined(shell, &can, threads, steps)?;
        let micro_batches = can.iter().map(|way| way.micro_batches);
        Ok(Self {
            single,
            pipelined: micro_batches.zip(runs).collect(),
        })
    }

    /// The like of one of the configurations.
    fn pipelined(&self, way: &Configuration) -> Option<&Run> {
        let mut all = self.pipelined.iter();
        all.find(|(parts, _)| *parts == way.micro_batches)
            .map(|(_, run)| run)
    }
}

/// The flags of a configuration.
fn arguments(
    model: &str,
    dtype: &str,
    configuration: &Configuration,
    threads: usize,
) -> Vec<String> {
    let Configuration {
        stages,
        micro_batches,
        schedule,
        remat,
    } = configuration;
    let [stages, micro_batches, threads] =
        [*stages, *micro_batches, threads].map(|n| n.to_string());
    let flags = [
        ("--model", model),
        ("--dtype", dtype),
        ("--stages", &stages),
        ("--micro-batches", &micro_batches),
        ("--schedule", schedule),
        ("--remat", remat),
        ("--threads", &threads),
    ];
    let flags = flags.iter().flat_map(|(flag, value)| [*flag, *value]);
    flags.map(str::to_owned).collect()
}

/// Runs of neighbours that differ in their micro-batches alone.
fn groups(configurations: &[Configuration]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (index, configuration) in configurations.iter().enumerate() {
        match found.last_mut() {
            Some(last) if configurations[last.start].is_like(configuration) => last.end += 1,
            _ => found.push(index..index + 1),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(stages: usize, micro_batches: usize) -> Configuration {
        Configuration {
            stages,
            micro_batches,
            schedule: "gpipe".into(),
            remat: "keep".into(),
        }
    }

    #[test]
    fn configurations_become_flags() {
        assert_eq!(
            arguments("bench-a", "bf16", &way(2, 4), 3).join(" "),
            "--model bench-a --dtype bf16 --stages 2 --micro-batches 4 --schedule gpipe --remat keep --threads 3"
        );
    }

    #[test]
    fn those_that_a_process_can_run_together_are_neighbours() {
        let ways = [way(1, 1), way(1, 4), way(2, 4), way(1, 8)];
        assert_eq!(groups(&ways), [0..2, 2..3, 3..4]);
        assert!(groups(&[]).is_empty());
    }
}
