//! Two replicas of one thread over MPI beside PyTorch's DistributedDataParallel over gloo, and one thread of each
//! without either: the ratio of both is to be that of one thread.

use std::path::Path;

use serde_json::{Value, json};
use xshell::Shell;

use crate::bench::calm::Others;
use crate::bench::peer::Peer;
use crate::bench::runs;
use crate::bench::table::table;
use crate::bench::turns::{self, Took, median};
use crate::flags::Bench;

const REPLICAS: usize = 2;

/// Measures under every launcher, in turns with PyTorch, and prints a table.
pub fn run(shell: &Shell, root: &Path, flags: &Bench, launchers: &[&str]) -> anyhow::Result<()> {
    let (rounds, steps) = (flags.rounds.unwrap_or(5), flags.steps.unwrap_or(6));
    let python = flags.python.clone().unwrap_or_else(|| "python3".into());
    if !turns::has_modules(shell, &python, &["torch"], "ranks") {
        return Ok(());
    }
    let model = flags.model.as_deref().unwrap_or("bench-a");
    let peer = Peer::new(root, &python, model, "f32");
    let torch = |processes: usize| -> anyhow::Result<(f64, Others)> {
        let run = peer.replicated(shell, processes, steps)?;
        Ok((Took::wall_of(&run)?, run.others))
    };
    let gpipe = |launcher: Option<&str>| -> anyhow::Result<(f64, Others)> {
        let before = launcher.map(|launcher| vec![launcher, "-np", "2"]);
        let run = runs::train_by(
            shell,
            &before.unwrap_or_default(),
            &arguments(model, launcher.is_some()),
            steps,
        )?;
        Ok((Took::wall_of(&run)?, run.others))
    };
    let mut all = vec![Vec::new(); launchers.len()];
    for round in 1..=rounds {
        for (launcher, found) in launchers.iter().zip(&mut all) {
            eprintln!("ranks b: round {round} of {rounds}, {launcher}");
            let turns = [
                gpipe(None)?,
                torch(1)?,
                gpipe(Some(launcher))?,
                torch(REPLICAS)?,
            ];
            found.push(Round {
                seconds: turns.map(|(seconds, _)| seconds),
                others: turns
                    .into_iter()
                    .map(|(_, others)| others)
                    .fold(Others::default(), Others::worse),
            });
        }
    }
    let heading = [
        "launcher",
        "one thread",
        "PyTorch",
        "ratio",
        "2 replicas",
        "PyTorch",
        "ratio",
        "of both ratios",
        "machine",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for (launcher, rounds) in launchers.iter().zip(&all) {
        rows.push(row(launcher, rounds));
        if flags.json {
            println!("{}", line(model, launcher, rounds));
        }
    }
    if !flags.json {
        println!(
            "{model}, a step: one thread alone, and {REPLICAS} replicas of one thread (here over MPI, in PyTorch by \
             DistributedDataParallel over gloo); ratios: median of the rounds [interval of 90 %]"
        );
        if flags.markdown {
            println!();
        }
        print!("{}", table(&rows, flags.markdown));
    }
    Ok(())
}

/// One turn of each: one thread here and in PyTorch, replicas here and in PyTorch.
#[derive(Clone, Debug)]
struct Round {
    seconds: [f64; 4],
    others: Others,
}

impl Round {
    /// Of one thread, of replicas, and of the second to the first.
    fn ratios(&self) -> [f64; 3] {
        let [one, their_one, both, their_both] = self.seconds;
        let (alone, replicated) = (one / their_one, both / their_both);
        [alone, replicated, replicated / alone]
    }
}

/// The flags of one process.
fn arguments(model: &str, is_replicated: bool) -> Vec<String> {
    let mut flags = vec!["--model", model, "--stages", "1", "--threads", "1"];
    if is_replicated {
        flags.extend(["--replicas", "2", "--micro-batches", "2"]);
    }
    flags.into_iter().map(str::to_owned).collect()
}

fn medians(rounds: &[Round]) -> ([Option<f64>; 4], [Option<[f64; 3]>; 3]) {
    let seconds = [0, 1, 2, 3];
    let ratios = [0, 1, 2];
    (
        seconds.map(|i| median(rounds.iter().map(|round| Some(round.seconds[i])))),
        ratios.map(|i| turns::ratios(rounds.iter().map(|round| Some(round.ratios()[i])))),
    )
}

fn disturbed(rounds: &[Round]) -> Others {
    let others = rounds.iter().map(|round| round.others);
    others.fold(Others::default(), Others::worse)
}

fn row(launcher: &str, rounds: &[Round]) -> [String; 9] {
    let (seconds, ratios) = medians(rounds);
    let [one, their_one, both, their_both] =
        seconds.map(|time| time.map_or("-".into(), |time| format!("{:.1} ms", 1e3 * time)));
    let [alone, replicated, of_both] = ratios.map(turns::interval);
    let others = disturbed(rounds);
    let machine = match others.is_calm() {
        true => "calm".into(),
        false => format!("not calm: {:.0} %", 100.0 * others.share()),
    };
    [
        launcher.to_owned(),
        one,
        their_one,
        alone,
        both,
        their_both,
        replicated,
        of_both,
        machine,
    ]
}

fn line(model: &str, launcher: &str, rounds: &[Round]) -> Value {
    let (seconds, ratios) = medians(rounds);
    let others = disturbed(rounds);
    json!({
        "kind": "bench",
        "family": "ranks",
        "part": "b",
        "model": model,
        "launcher": launcher,
        "replicas": REPLICAS,
        "one_thread_median_seconds": seconds[0],
        "peer_one_thread_median_seconds": seconds[1],
        "replicas_median_seconds": seconds[2],
        "peer_replicas_median_seconds": seconds[3],
        "ratio_of_one_thread": ratios[0],
        "ratio_of_replicas": ratios[1],
        "ratio_of_ratios": ratios[2],
        "rounds": rounds.len(),
        "others_share": others.busy,
        "stolen_share": others.stolen,
        "calm": others.is_calm(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let round = |seconds| Round {
            seconds,
            others: Others::default(),
        };
        // The machine halves its speed after the first round.
        let rounds = [
            round([1.0, 2.0, 0.6, 1.0]),
            round([2.0, 4.0, 1.2, 2.0]),
            round([2.0, 4.0, 1.0, 2.0]),
        ];
        assert_eq!(
            row("mpirun", &rounds).join(", "),
            "mpirun, 2000.0 ms, 4000.0 ms, 0.50 [0.50 to 0.50], 1000.0 ms, 2000.0 ms, 0.60 [0.50 to 0.60], \
             1.20 [1.00 to 1.20], calm"
        );
        let line = line("bench-a", "mpirun", &rounds);
        assert_eq!(line["ratio_of_ratios"], json!([1.2, 1.0, 1.2]));
    }
}
