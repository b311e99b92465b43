//! What came out, for people and for programs.

use serde_json::{Value, json};

use super::configuration::Configuration;
use super::model::Model;
use super::summary::Summary;
use super::table::table;

/// A configuration, and what it took.
pub struct Measured<'a> {
    pub configuration: &'a Configuration,
    pub summary: Summary,
    /// Bytes that the process had at most.
    pub resident: Option<u64>,
}

/// One object of `--json`.
pub fn json_line(
    model: &Model,
    threads: usize,
    measured: &Measured<'_>,
    theirs: Option<&Summary>,
) -> Value {
    let Measured {
        configuration,
        summary: ours,
        resident,
    } = measured;
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
        "peak_resident_bytes": resident,
        "peer_median_seconds": theirs.map(|theirs| theirs.median),
        "ratio": theirs.map(|theirs| ours.median / theirs.median),
    })
}

/// A table with a line for each configuration, and for PyTorch.
pub fn drawn(
    model: &Model,
    threads: usize,
    ours: &[Measured<'_>],
    theirs: Option<&Summary>,
    markdown: bool,
) -> String {
    let heading = [
        "",
        "median ms",
        "min ms",
        "spread",
        "tokens/s",
        "GFLOP/s",
        "MB",
        "ratio",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    let mut row = |name: String, summary: &Summary, resident: Option<u64>, ratio: Option<f64>| {
        rows.push([
            name,
            format!("{:.1}", summary.median * 1e3),
            format!("{:.1}", summary.min * 1e3),
            format!("{:.1} %", summary.spread * 100.0),
            format!("{:.0}", model.tokens() as f64 / summary.median),
            format!("{:.1}", model.flops() as f64 / summary.median / 1e9),
            resident.map_or_else(String::new, |bytes| format!("{:.0}", bytes as f64 / 1e6)),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
        ]);
    };
    for measured in ours {
        row(
            measured.configuration.to_string(),
            &measured.summary,
            measured.resident,
            theirs.map(|theirs| measured.summary.median / theirs.median),
        );
    }
    if let Some(theirs) = theirs {
        row("PyTorch, one process".into(), theirs, None, Some(1.0));
    }
    format!(
        "{} with {threads} threads; spread is that of the middle half, MB the process's peak\n{}{}",
        model.name,
        if markdown { "\n" } else { "" },
        table(&rows, markdown)
    )
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
        let measured = Measured {
            configuration,
            summary: ours,
            resident: Some(90_400_000),
        };
        let line = json_line(&MODELS[0], 2, &measured, Some(&theirs));
        assert_eq!(line["ratio"], 1.5);
        assert_eq!(line["tokens_per_second"], 4096.0 / 1.5);
        assert_eq!(
            json_line(&MODELS[0], 2, &measured, None)["ratio"],
            Value::Null
        );
        let drawn = drawn(&MODELS[0], 2, &[measured], Some(&theirs), false);
        assert!(
            drawn
                .lines()
                .any(|line| line.starts_with("K=1 M=1 gpipe keep") && line.ends_with("90  1.500"))
        );
        assert!(
            drawn
                .lines()
                .any(|line| line.starts_with("PyTorch") && line.ends_with("1.000"))
        );
    }
}
