//! Layers before the pipeline: forward and backward once on the whole batch, so that batch normalization among them sees
//! all of it.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{gpipe, objects, stderr, stdout};

/// An image network of nine layers, each with batch normalizations but the last.
const SMALL: [&str; 12] = [
    "--model",
    "amoebanetd:3,16",
    "--data",
    "synthetic",
    "--image-size",
    "32",
    "--batch-size",
    "9",
    "--threads",
    "2",
    "--stages",
    "2",
];

fn small(folder: &Path, command: &str, arguments: &[&str]) -> Output {
    gpipe(folder, &[&[command], &SMALL[..], arguments].concat())
}

/// The objects of two steps with this number of layers before this number of micro-batches.
fn steps(folder: &Path, before: &str, micro_batches: &str, stages: &str) -> Vec<Value> {
    let run = format!("run-{before}-{micro_batches}");
    let arguments = ["--steps", "2", "--json", "--out", &run, "--stages", stages];
    let pipeline = ["--before", before, "--micro-batches", micro_batches];
    let mut objects = objects(&small(
        folder,
        "train",
        &[&arguments[..], &pipeline].concat(),
    ));
    objects.retain(|object| object["kind"] == "step");
    let events = std::fs::read_to_string(folder.join(run).join("events.jsonl")).unwrap();
    let end: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(end["peak_bytes"], end["predicted_peak_bytes"]);
    objects
}

/// With every normalization before it, the number of micro-batches changes nothing but the rounding.
#[test]
fn normalization_before_the_pipeline_sees_the_whole_batch() {
    let folder = tempfile::tempdir().unwrap();
    let losses = |before, micro_batches| -> Vec<f64> {
        let steps = steps(folder.path(), before, micro_batches, "1");
        let losses = steps.iter().map(|step| step["loss"].as_f64().unwrap());
        losses.collect()
    };
    let apart = |a: &[f64], b: &[f64]| (a[0] - b[0]).abs() / a[0];
    let whole = losses("0", "1");
    for micro_batches in ["1", "2", "4"] {
        let got = losses("8", micro_batches);
        let apart = apart(&whole, &got);
        assert!(apart < 1e-6, "{micro_batches}: {got:?} is not {whole:?}");
    }
    let without = losses("0", "4");
    assert!(apart(&whole, &without) > 1e-3, "{without:?}: {whole:?}");
}

#[test]
fn layers_before_the_pipeline_are_planned_verified_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (stages, schedule, remat, more) in [
        ("2", "gpipe", "keep", "1"),
        ("4", "1f1b", "stage", "1"),
        ("3", "zb-h1", "stage", "2"),
    ] {
        let arguments = ["--before", "3", "--micro-batches", "4", "--stages", stages];
        let others = ["--schedule", schedule, "--remat", remat, "--groups", more];
        let output = small(here, "verify", &[arguments, others].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("equal: "));
    }
    // The first stage has them and one layer of its own at least.
    let arguments = ["--before", "6", "--stages", "3", "--micro-batches", "4"];
    let json = [&arguments[..], &["--image-size", "64", "--json"]].concat();
    let plan = &objects(&small(here, "plan", &json))[0];
    let first = plan["cut"][0].as_u64().unwrap();
    assert!(first > 6, "{plan}");
    let text = stdout(&small(here, "plan", &json[..json.len() - 1]));
    assert!(text.contains("9 layers (6 before the pipeline)"), "{text}");
    steps(here, "3", "4", "2");
    let run = "run-3-4";
    let eval = gpipe(here, &["eval", run]);
    assert_eq!(eval.status.code(), Some(0), "{}", stderr(&eval));
    let same = [
        "train",
        "--resume",
        run,
        "--steps",
        "3",
        "--lr-schedule",
        "constant",
    ];
    let other = gpipe(here, &[&same[..], &["--before", "2"]].concat());
    assert_eq!(other.status.code(), Some(0), "{}", stderr(&other));
    let warning =
        "--before is 2, but 3 in the checkpoint: batch normalization takes its statistics";
    assert!(stderr(&other).contains(warning), "{}", stderr(&other));
}

#[test]
fn layers_before_the_pipeline_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (command, arguments, mend) in [
        ("plan", &["--before", "8"][..], "--before 7"),
        ("train", &["--before", "99999"], "--before 7"),
        (
            "plan",
            &["--before", "3", "--partition", "3,6"],
            "give it 4 or more",
        ),
        (
            "train",
            &["--before", "3", "--remat", "budget:1GiB"],
            "--remat stage",
        ),
        ("plan", &["--before", "3", "--auto"], "leave it out"),
        ("plan", &["--before", "-1"], "from 0"),
    ] {
        let output = small(
            folder.path(),
            command,
            &[&["--micro-batches", "4"], arguments].concat(),
        );
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains(mend), "{line}");
    }
}
