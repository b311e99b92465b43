//! What came out, for people and for programs.

use serde_json::{Value, json};

use super::configuration::Configuration;
use super::model::Model;
use super::summary::Summary;

/// One object of `--json`.
pub fn json_line(
    model: &Model,
    threads: usize,
    configuration: &Configuration,
    ours: &Summary,
    theirs: Option<&Summary>,
) -> Value {
    json!({
        "kind": "bench",
        "family": "training",
        "model": model.name,
        "threads": threads,
        "stages": configuration.stages,
        "micro_batches": configuration.micro_batches,
        "schedule": configuration.schedule,
        "remat": configuration.remat,
        "steps": ours.count,
        "median_seconds": ours.median,
        "min_seconds": ours.min,
        "spread": ours.spread,
        "tokens_per_second": model.tokens() as f64 / ours.median,
        "gflops_per_second": model.flops() as f64 / ours.median / 1e9,
        "peer_median_seconds": theirs.map(|theirs| theirs.median),
        "ratio": theirs.map(|theirs| ours.median / theirs.median),
    })
}

/// A table with a line for each configuration, and for PyTorch.
pub fn table(
    model: &Model,
    threads: usize,
    ours: &[(&Configuration, Summary)],
    theirs: Option<&Summary>,
) -> String {
    let mut lines = vec![
        format!(
            "{} with {threads} threads; spread is that of the middle half",
            model.name
        ),
        format!(
            "{:<22} {:>10} {:>10} {:>7} {:>10} {:>8} {:>8}",
            "", "median ms", "min ms", "spread", "tokens/s", "GFLOP/s", "ratio"
        ),
    ];
    let mut row = |name: &str, summary: &Summary, ratio: Option<f64>| {
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        lines.push(format!(
            "{name:<22} {:>10.1} {:>10.1} {:>6.1}% {:>10.0} {:>8.1} {ratio:>8}",
            summary.median * 1e3,
            summary.min * 1e3,
            summary.spread * 100.0,
            model.tokens() as f64 / summary.median,
            model.flops() as f64 / summary.median / 1e9,
        ));
    };
    for (configuration, summary) in ours {
        row(
            &configuration.to_string(),
            summary,
            theirs.map(|theirs| summary.median / theirs.median),
        );
    }
    if let Some(theirs) = theirs {
        row("PyTorch, one process", theirs, Some(1.0));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::model::MODELS;

    #[test]
    fn the_ratio_is_ours_over_theirs() {
        let configuration = &Configuration {
            stages: 1,
            micro_batches: 1,
            schedule: "gpipe".into(),
            remat: "keep".into(),
        };
        let ours = Summary::of(&[1.5]).unwrap();
        let theirs = Summary::of(&[1.0]).unwrap();
        let line = json_line(&MODELS[0], 2, configuration, &ours, Some(&theirs));
        assert_eq!(line["ratio"], 1.5);
        assert_eq!(line["tokens_per_second"], 4096.0 / 1.5);
        assert_eq!(
            json_line(&MODELS[0], 2, configuration, &ours, None)["ratio"],
            Value::Null
        );
        let table = table(&MODELS[0], 2, &[(configuration, ours)], Some(&theirs));
        assert!(
            table
                .lines()
                .any(|line| line.starts_with("K=1 M=1 gpipe keep") && line.ends_with("1.500"))
        );
        assert!(
            table
                .lines()
                .any(|line| line.starts_with("PyTorch") && line.ends_with("1.000"))
        );
    }
}
