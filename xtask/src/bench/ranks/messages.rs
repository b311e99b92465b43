//! Messages between two ranks, through the transport of runs and by MPI's own calls: one way, by size.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use crate::bench::calm::{self, Others};
use crate::bench::table::table;
use crate::bench::turns::median;
use crate::flags::Bench;

/// The ways in which the example passes them.
const WAYS: [&str; 2] = ["gpipe", "mpi"];

/// Measures under every launcher and prints a table each.
pub fn run(shell: &Shell, flags: &Bench, launchers: &[&str]) -> anyhow::Result<()> {
    let rounds = flags.rounds.unwrap_or(5);
    let build = cmd!(
        shell,
        "cargo build --release -p gpipe-mpi --example messages"
    );
    build.run()?;
    for launcher in launchers {
        let (mut found, mut disturbed) = (Times::default(), Others::default());
        for round in 1..=rounds {
            eprintln!("ranks c: round {round} of {rounds}, {launcher}");
            for turn in 0..2 {
                let way = (round + turn) % 2;
                let name = WAYS[way];
                let command = cmd!(
                    shell,
                    "{launcher} -np 2 cargo run --release --quiet -p gpipe-mpi --example messages -- {name}"
                );
                let command = command.quiet();
                let (output, others) = calm::measure(|| Ok(command.read()?))?;
                add(&mut found, way, &output)?;
                disturbed = disturbed.worse(others);
            }
        }
        if flags.json {
            println!("{}", line(launcher, &found, disturbed));
            continue;
        }
        let machine = match disturbed.is_calm() {
            true => "calm".into(),
            false => format!("not calm: {:.0} %", 100.0 * disturbed.share()),
        };
        println!(
            "{launcher}: one way of a message, here and by MPI's own calls on one thread that polls; median of \
             {rounds} rounds; machine {machine}"
        );
        if flags.markdown {
            println!();
        }
        print!("{}", table(&rows(&found), flags.markdown));
    }
    Ok(())
}

/// By bytes, for both ways: the seconds of each round.
type Times = BTreeMap<u64, [Vec<f64>; 2]>;

/// Adds the JSON lines of a run.
fn add(times: &mut Times, way: usize, output: &str) -> anyhow::Result<()> {
    let mut any = false;
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("a JSON line of the example")?;
        let bytes = message["bytes"].as_u64().context("a line without bytes")?;
        let seconds = message["seconds"].as_f64();
        let seconds = seconds.context("a line without seconds")?;
        times.entry(bytes).or_default()[way].push(seconds);
        any = true;
    }
    anyhow::ensure!(
        any,
        "the example printed no JSON line: is the launcher an MPI's?"
    );
    Ok(())
}

fn medians(both: &[Vec<f64>; 2]) -> [Option<f64>; 2] {
    [0, 1].map(|way| median(both[way].iter().map(|&seconds| Some(seconds))))
}

fn rows(times: &Times) -> Vec<[String; 6]> {
    let heading = ["bytes", "here", "MPI", "ratio", "here, GB/s", "MPI, GB/s"];
    let mut rows = vec![heading.map(str::to_owned)];
    for (&bytes, both) in times {
        let [here, mpi] = medians(both);
        let text = |number: Option<f64>, digits: usize| {
            number.map_or("-".into(), |number| format!("{number:.digits$}"))
        };
        let micro = |seconds: Option<f64>| text(seconds.map(|s| 1e6 * s), 1) + " µs";
        let rate = |seconds: Option<f64>| text(seconds.map(|s| bytes as f64 / s / 1e9), 2);
        let ratio = here.zip(mpi).map(|(here, mpi)| here / mpi);
        rows.push([
            bytes.to_string(),
            micro(here),
            micro(mpi),
            text(ratio, 2),
            rate(here),
            rate(mpi),
        ]);
    }
    rows
}

fn line(launcher: &str, times: &Times, others: Others) -> Value {
    let sizes = times.iter().map(|(&bytes, both)| {
        let [here, mpi] = medians(both);
        json!({ "bytes": bytes, "seconds": here, "mpi_seconds": mpi })
    });
    json!({
        "kind": "bench",
        "family": "ranks",
        "part": "c",
        "launcher": launcher,
        "messages": sizes.collect::<Vec<_>>(),
        "others_share": others.busy,
        "stolen_share": others.stolen,
        "calm": others.is_calm(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_both_ways_are_told_by_size() {
        let mut times = Times::default();
        for seconds in [3e-6, 5e-6, 4e-6] {
            let output = format!(
                "other words\n{{\"bytes\": 8, \"seconds\": {seconds}}}\n{{\"bytes\": 1000, \"seconds\": 1e-6}}\n"
            );
            add(&mut times, 0, &output).unwrap();
        }
        add(&mut times, 1, "{\"bytes\": 8, \"seconds\": 2e-6}").unwrap();
        let rows = rows(&times);
        assert_eq!(rows[1].join(", "), "8, 4.0 µs, 2.0 µs, 2.00, 0.00, 0.00");
        assert_eq!(rows[2].join(", "), "1000, 1.0 µs, - µs, -, 1.00, -");
        assert!(add(&mut times, 1, "no line").is_err());
        let line = line("mpirun", &times, Others::default());
        assert_eq!(line["messages"][0]["mpi_seconds"], json!(2e-6));
    }
}
