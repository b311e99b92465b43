//! Two stages as processes of one thread over MPI, beside the same stages as threads of one process.

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::Shell;

use crate::bench::calm::Others;
use crate::bench::configuration::listed;
use crate::bench::runs;
use crate::bench::table::table;
use crate::bench::turns::{self, Took, median};
use crate::flags::Bench;

/// Stages, ranks, and threads in all.
const STAGES: usize = 2;
/// Micro-batches of a step: with few of them threads of one process gain what processes cannot, the threads of a stage
/// that waits.
const MICRO_BATCHES: &str = "16";
/// One with a bubble, in which a thread is lent, and one almost without.
const SCHEDULES: &str = "1f1b,zb-h1";

/// Measures every schedule under every launcher and prints a table.
pub fn run(shell: &Shell, flags: &Bench, launchers: &[&str]) -> anyhow::Result<()> {
    let (rounds, steps) = (flags.rounds.unwrap_or(5), flags.steps.unwrap_or(6));
    let model = flags.model.as_deref().unwrap_or("bench-a");
    let micro_batches = flags.micro_batches.as_deref().unwrap_or(MICRO_BATCHES);
    let schedules = listed(flags.schedules.as_deref().unwrap_or(SCHEDULES));
    let ways = launchers
        .iter()
        .flat_map(|&launcher| schedules.iter().map(move |name| [launcher, name.as_str()]));
    let ways: Vec<[&str; 2]> = ways.collect();
    let mut all = vec![Vec::new(); ways.len()];
    for round in 1..=rounds {
        for (&[launcher, schedule], found) in ways.iter().zip(&mut all) {
            eprintln!("ranks a: round {round} of {rounds}, {launcher}, {schedule}");
            // Who goes first changes, so that a drift of the machine's speed favours nobody.
            let mut both = [None, None];
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let (before, threads) = match side {
                    0 => (two_processes(launcher), 1),
                    _ => (Vec::new(), STAGES),
                };
                let run = runs::train_by(
                    shell,
                    &before,
                    &arguments(model, schedule, micro_batches, threads),
                    steps,
                )?;
                both[side] = Some((Took::of(&run)?, run.others));
            }
            let [processes, threads] = both.map(|side| side.context("a turn that was left out"));
            let ((processes, some), (threads, more)) = (processes?, threads?);
            found.push(Round {
                processes,
                threads,
                others: some.worse(more),
            });
        }
    }
    let heading = [
        "launcher",
        "schedule",
        "processes",
        "threads",
        "ratio",
        "machine",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for (&way, rounds) in ways.iter().zip(&all) {
        rows.push(row(way, rounds));
        if flags.json {
            println!("{}", line(model, micro_batches, way, rounds));
        }
    }
    if !flags.json {
        println!(
            "{model} in {STAGES} stages, {micro_batches} micro-batches, a step: processes of one thread over MPI, \
             threads of one process;\n\
             ratio: median of the rounds [interval of 90 %]"
        );
        if flags.markdown {
            println!();
        }
        print!("{}", table(&rows, flags.markdown));
    }
    Ok(())
}

/// One turn of each.
#[derive(Clone, Debug)]
struct Round {
    processes: Took,
    threads: Took,
    others: Others,
}

/// Starts two processes, each on a core of its own as Open MPI's launcher places two. MPICH's places none unless asked, and a
/// worker that the system moves to another core leaves its cache behind.
fn two_processes(launcher: &str) -> Vec<&str> {
    let mut command = vec![launcher, "-np", "2"];
    if launcher.contains("hydra") {
        command.extend(["-bind-to", "core"]);
    }
    command
}

/// The flags of one process.
fn arguments(model: &str, schedule: &str, micro_batches: &str, threads: usize) -> Vec<String> {
    let [stages, threads] = [STAGES, threads].map(|n| n.to_string());
    let flags = ["--model", model, "--stages", &stages, "--threads", &threads];
    let pipeline = ["--schedule", schedule, "--micro-batches", micro_batches];
    let flags = flags.into_iter().chain(pipeline);
    flags.map(str::to_owned).collect()
}

/// Wall seconds of processes and of threads, and the ratio with its interval.
fn wall(rounds: &[Round]) -> ([Option<f64>; 2], Option<[f64; 3]>) {
    let sides: [fn(&Round) -> f64; 2] = [|round| round.processes.wall, |round| round.threads.wall];
    let ratio = |round: &Round| Some(round.processes.wall / round.threads.wall);
    (
        sides.map(|side| median(rounds.iter().map(|round| Some(side(round))))),
        turns::ratios(rounds.iter().map(ratio)),
    )
}

fn disturbed(rounds: &[Round]) -> Others {
    let others = rounds.iter().map(|round| round.others);
    others.fold(Others::default(), Others::worse)
}

fn row([launcher, schedule]: [&str; 2], rounds: &[Round]) -> [String; 6] {
    let (times, ratio) = wall(rounds);
    let [processes, threads] =
        times.map(|time| time.map_or("-".into(), |time| format!("{:.1} ms", 1e3 * time)));
    let others = disturbed(rounds);
    let machine = match others.is_calm() {
        true => "calm".into(),
        false => format!("not calm: {:.0} %", 100.0 * others.share()),
    };
    [
        launcher.to_owned(),
        schedule.to_owned(),
        processes,
        threads,
        turns::interval(ratio),
        machine,
    ]
}

fn line(
    model: &str,
    micro_batches: &str,
    [launcher, schedule]: [&str; 2],
    rounds: &[Round],
) -> Value {
    let ([processes, threads], ratio) = wall(rounds);
    let others = disturbed(rounds);
    json!({
        "kind": "bench",
        "family": "ranks",
        "part": "a",
        "model": model,
        "launcher": launcher,
        "schedule": schedule,
        "stages": STAGES,
        "micro_batches": micro_batches,
        "processes_median_seconds": processes,
        "threads_median_seconds": threads,
        "ratio": ratio.map(|ratio| ratio[0]),
        "ratio_interval": ratio.map(|ratio| [ratio[1], ratio[2]]),
        "pairs": rounds.len(),
        "others_share": others.busy,
        "stolen_share": others.stolen,
        "calm": others.is_calm(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_the_same_round_and_the_busiest_round_is_told() {
        let round = |processes: f64, threads: f64, busy: f64| Round {
            processes: Took {
                wall: processes,
                cpu: 1.0,
            },
            threads: Took {
                wall: threads,
                cpu: 1.0,
            },
            others: Others { busy, stolen: 0.0 },
        };
        // The machine halves its speed after the first round.
        let rounds = [
            round(1.1, 1.0, 0.01),
            round(2.4, 2.0, 0.02),
            round(2.0, 2.0, 0.25),
        ];
        assert_eq!(
            row(["mpirun", "1f1b"], &rounds),
            [
                "mpirun",
                "1f1b",
                "2000.0 ms",
                "2000.0 ms",
                "1.10 [1.00 to 1.20]",
                "not calm: 25 %"
            ]
        );
        assert_eq!(row(["mpirun", "1f1b"], &rounds[..2])[5], "calm");
        let line = line("bench-a", "16", ["mpirun", "1f1b"], &rounds);
        assert_eq!((&line["ratio"], &line["pairs"]), (&json!(1.1), &json!(3)));
        assert_eq!(
            (&line["calm"], &line["others_share"]),
            (&json!(false), &json!(0.25))
        );
    }
}
