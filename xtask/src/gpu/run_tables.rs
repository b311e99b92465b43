//! The summary's tables of runs of GPT-2: beside PyTorch's, and with CUDA graphs beside single launches.

use serde_json::Value;

use crate::bench::summary::Summary;
use crate::bench::table::table;

/// What a run is called in tables: gpipe launches graphs unless told otherwise.
pub fn named(program: &str, devices: &str, graphs: bool) -> String {
    let is_single = program == "gpipe" && !graphs;
    let launches = if is_single { ", single launches" } else { "" };
    format!("{program}, {devices}{launches}")
}

/// What makes runs comparable.
fn way(run: &Value) -> [&Value; 4] {
    ["precision", "devices", "micro_batches", "batch"].map(|key| &run[key])
}

/// Whether a run launches graphs.
fn has_graphs(run: &Value) -> bool {
    run["graphs"] == true
}

/// Median of the medians of a number in all rounds of a program in the way of a run, and how many there are.
fn median(
    runs: &[&Value],
    key: &str,
    [program, of]: [&Value; 2],
    graphs: bool,
) -> Option<(f64, usize)> {
    let same = runs.iter().filter(|run| {
        run["program"] == *program && way(run) == way(of) && has_graphs(run) == graphs
    });
    let seconds: Vec<f64> = same.filter_map(|run| run[key].as_f64()).collect();
    Summary::of(&seconds).map(|summary| (summary.median, summary.count))
}

/// The first run of each program in each way.
fn distinct<'a>(runs: &[&'a Value]) -> Vec<&'a Value> {
    let is_same = |a: &Value, b: &Value| {
        a["program"] == b["program"] && way(a) == way(b) && has_graphs(a) == has_graphs(b)
    };
    let mut firsts: Vec<&Value> = Vec::new();
    for &run in runs {
        if !firsts.iter().any(|one| is_same(one, run)) {
            firsts.push(run);
        }
    }
    firsts
}

/// Medians of each way, beside PyTorch's.
pub fn beside_pytorch(runs: &[&Value]) -> String {
    let heading = [
        "",
        "precision",
        "M",
        "batch",
        "ms a step",
        "tokens/s",
        "TFLOP/s",
        "rounds",
        "of PyTorch, eager",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for run in distinct(runs) {
        let own = median(runs, "seconds", [&run["program"], run], has_graphs(run));
        let Some((seconds, rounds)) = own else {
            continue;
        };
        let rate = |key: &str| run[key].as_f64().unwrap_or(f64::NAN) / seconds;
        let eager = median(runs, "seconds", [&"PyTorch, eager".into(), run], false);
        let text = |key: &str| run[key].as_str().unwrap_or_default();
        rows.push([
            named(text("program"), text("devices"), has_graphs(run)),
            text("precision").to_owned(),
            run["micro_batches"].to_string(),
            run["batch"].to_string(),
            format!("{:.2}", 1e3 * seconds),
            format!("{:.0}", rate("tokens")),
            format!("{:.1}", rate("flops") / 1e12),
            rounds.to_string(),
            eager.map_or_else(String::new, |(eager, _)| format!("{:.3}", eager / seconds)),
        ]);
    }
    match rows.len() {
        1 => "No run is known yet.\n".to_owned(),
        _ => format!("\n## Runs of GPT-2\n\n{}", table(&rows, true)),
    }
}

/// A step and the host's part of it, with single launches and with graphs; nothing if no way has runs of both.
pub fn beside_graphs(runs: &[&Value]) -> String {
    let heading = [
        "",
        "M",
        "ms a step, single launches",
        "graphs",
        "of it",
        "ms of asking, single launches",
        "graphs",
        "of it",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    let has_single =
        |run: &&Value| median(runs, "seconds", [&run["program"], *run], false).is_some();
    let with_graphs = distinct(runs).into_iter().filter(|run| has_graphs(run));
    for run in with_graphs.filter(has_single) {
        let cells = |key: &str| {
            let [single, graphs] = [false, true].map(|graphs| {
                median(runs, key, [&run["program"], run], graphs)
                    .map_or(f64::NAN, |(seconds, _)| seconds)
            });
            [
                format!("{:.2}", 1e3 * single),
                format!("{:.2}", 1e3 * graphs),
                format!("{:.3}", graphs / single),
            ]
        };
        let ([single, graphs, share], asking) = (cells("seconds"), cells("asking_seconds"));
        let [asking, by_graphs, of_asking] = asking;
        rows.push([
            run["devices"].as_str().unwrap_or_default().to_owned(),
            run["micro_batches"].to_string(),
            single,
            graphs,
            share,
            asking,
            by_graphs,
            of_asking,
        ]);
    }
    match rows.len() {
        1 => String::new(),
        _ => format!("\n## With CUDA graphs\n\n{}", table(&rows, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(program: &str, micro_batches: u32, seconds: f64) -> Value {
        json!({
            "kind": "run", "part": "b", "program": program, "precision": "bf16", "devices": "cuda:0",
            "micro_batches": micro_batches, "batch": 32, "seconds": seconds, "tokens": 1000.0, "flops": 1e12,
        })
    }

    #[test]
    fn runs_are_medians_beside_pytorch() {
        let rows = [
            run("gpipe", 1, 0.2),
            run("gpipe", 8, 0.8),
            run("gpipe", 1, 0.4),
            run("PyTorch, eager", 1, 0.6),
            run("gpipe", 1, 0.25),
        ];
        let page = beside_pytorch(&rows.iter().collect::<Vec<_>>());
        let row = |start: &str| {
            let line = page
                .lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_default();
            line.split('|')
                .map(str::trim)
                .skip(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            row("| gpipe, cuda:0, single launches "),
            "bf16 1 32 250.00 4000 4.0 3 2.400 "
        );
        assert!(
            page.contains("| bf16      | 8 | 32    | 800.00    | 1250     | 1.2     | 1      |"),
            "{page}"
        );
    }

    #[test]
    fn graphs_are_beside_single_launches() {
        let with = |graphs: bool, seconds: f64, asking: f64| {
            let mut run = run("gpipe", 8, seconds);
            run["graphs"] = graphs.into();
            run["asking_seconds"] = asking.into();
            run
        };
        let single = run("gpipe", 1, 0.2);
        let mut wide = with(true, 0.9, 0.1);
        wide["batch"] = 64.into();
        assert_eq!(beside_graphs(&[&single, &wide]), "");
        let rows = [
            single,
            wide,
            with(false, 0.8, 0.5),
            with(true, 0.4, 0.05),
            with(false, 0.8, 0.3),
            with(true, 0.2, 0.05),
            run("PyTorch, eager", 8, 0.6),
        ];
        let rows: Vec<&Value> = rows.iter().collect();
        let page = beside_pytorch(&rows) + &beside_graphs(&rows);
        let cells = |line: &str| {
            let cells = line.split('|').map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let lines: Vec<String> = page.lines().map(cells).collect();
        for line in [
            "cuda:0 8 800.00 300.00 0.375 400.00 50.00 0.125",
            "gpipe, cuda:0, single launches bf16 8 32 800.00 1250 1.2 2 0.750",
            "gpipe, cuda:0 bf16 8 32 300.00 3333 3.3 2 2.000",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {page}");
        }
        assert!(!page.contains("NaN"), "{page}");
    }
}
