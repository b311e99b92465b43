//! The ratios of a report, and which measurements it compares.

use super::*;
use crate::bench::configuration::Configuration;
use crate::bench::model::MODELS;
use crate::bench::runs::Run;

fn way(stages: usize, micro_batches: usize) -> Configuration {
    Configuration {
        stages,
        micro_batches,
        schedule: "gpipe".into(),
        remat: "keep".into(),
    }
}

fn run(wall: f64, cpu: f64) -> Run {
    Run {
        seconds: vec![wall],
        cpu_seconds: vec![cpu],
        resident: Some(90_400_000),
        ..Run::default()
    }
}

fn report<'a>(measured: Vec<Measured<'a>>, single: Option<f64>) -> Report<'a> {
    Report {
        model: &MODELS[1],
        dtype: "f32",
        threads: 2,
        peak: Peak {
            fused: 2e11,
            product: 4e11,
            name: "Nn 1x2x3".into(),
        },
        measured,
        single: single.and_then(|seconds| Summary::of(&[seconds])),
    }
}

#[test]
fn the_ratio_is_ours_over_theirs() {
    let one = way(1, 1);
    let measured =
        |ratios: &[f64]| Measured::of(&one, &run(1.5, 2.5), &Run::default(), ratios).unwrap();
    let report_alone = report(vec![measured(&[])], None);
    assert_eq!(report_alone.json_lines()[0]["ratio"], Value::Null);
    let report = report(vec![measured(&[1.5, 1.4, 2.0])], Some(1.0));
    let line = &report.json_lines()[0];
    assert_eq!(
        (&line["ratio"], &line["cpu_median_seconds"]),
        (&json!(1.5), &json!(2.5))
    );
    assert_eq!(line["tokens_per_second"], 4096.0 / 1.5);
    let drawn = report.drawn(false);
    let ends = |start: &str, end: &str| {
        drawn
            .lines()
            .any(|line| line.starts_with(start) && line.ends_with(end))
    };
    // 169 GFLOP in 1.5 s.
    assert!(
        ends(
            "K=1 M=1 gpipe keep",
            "28 / 28 %   56 / 56 %  90  1.50 [1.40 to 2.00]"
        ),
        "{drawn}"
    );
    assert!(ends("PyTorch, one process  1000.0", "169.1"), "{drawn}");
    assert!(
        !drawn.contains("against") && !drawn.contains("best of each"),
        "{drawn}"
    );
}

#[test]
fn stages_are_compared_with_one_and_the_best_with_the_best() {
    let ways = [way(1, 4), way(2, 4), way(2, 8), way(2, 2)];
    let runs = [(0.8, 1.5), (0.84, 1.6), (0.7, 1.4), (0.9, 1.8)];
    let theirs = [None, Some(1.0), Some(1.4), None];
    let measured = ways
        .iter()
        .zip(runs.iter().zip(theirs))
        .map(|(way, (&(wall, cpu), theirs))| {
            let theirs = theirs.map_or(Run::default(), |seconds| run(seconds, seconds));
            Measured::of(way, &run(wall, cpu), &theirs, &[wall]).unwrap()
        });
    let report = report(measured.collect(), Some(2.0));
    let [_, against] = <[_; 2]>::try_from(report.against()).unwrap();
    // 40 ms of 4 · 2 pieces, 100 ms of CPU.
    assert_eq!(
        against,
        ["K=2 M=4 gpipe keep", "1.050", "1.067", "5000.0", "12500.0"]
    );
    let [_, best] = <[_; 2]>::try_from(report.best()).unwrap();
    assert_eq!(
        best,
        [
            "K=2 keep",
            "gpipe M=8",
            "700.0",
            "gpipe M=4",
            "1000.0",
            "0.700"
        ]
    );
    let ratios: Vec<Value> = report
        .json_lines()
        .iter()
        .map(|line| line["ratio"].clone())
        .collect();
    assert_eq!(ratios, [json!(0.8), json!(0.84), json!(0.7), json!(0.9)]);
    let drawn = report.drawn(true);
    assert!(drawn.contains("| PyTorch, K=2 M=4 gpipe keep |"), "{drawn}");
}
