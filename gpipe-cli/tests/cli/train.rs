//! `gpipe train`: it learns, tells so, and leaves what can be run again.

use std::fs;

use serde_json::Value;

use super::{assert_keys, gpipe, objects, parse, small, stderr, stdout};

const STEP: [&str; 11] = [
    "kind",
    "step",
    "loss",
    "grad_norm",
    "lr",
    "tokens_per_second",
    "step_seconds",
    "asking_seconds",
    "cpu_seconds",
    "bubble",
    "peak_bytes",
];

fn losses(objects: &[Value]) -> Vec<f64> {
    let steps = objects.iter().filter(|object| object["kind"] == "step");
    steps
        .map(|step| step["loss"].as_f64().expect("a loss"))
        .collect()
}

#[test]
fn a_small_model_learns() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--steps", "60", "--lr", "3e-3", "--stages", "3", "--keep", "0", "--json", "--out", "run",
    ];
    let output = small(folder.path(), "train", &arguments);
    let steps = objects(&output);
    assert_eq!(steps.len(), 60);
    for (index, step) in steps.iter().enumerate() {
        assert_keys(step, &STEP);
        assert_eq!(step["step"], index + 1);
        assert_eq!(step["peak_bytes"].as_array().unwrap().len(), 3);
        assert!((0.0..1.0).contains(&step["bubble"].as_f64().unwrap()));
    }
    let losses = losses(&steps);
    assert!((losses[0] - 256f64.ln()).abs() < 0.2, "{}", losses[0]);
    assert!(losses[59] < losses[0] - 1.0, "{losses:?}");

    // The talk is on stderr, and in the run's folder as well.
    let said = stderr(&output);
    let line = said
        .lines()
        .find(|line| line.starts_with("step 60/60  loss "))
        .expect("the last step");
    for words in [
        "  norm ",
        "  lr ",
        " tok/s  bubble ",
        " %  mem ",
        "iB  ETA 0s",
    ] {
        assert!(line.contains(words), "{line}");
    }
    for words in [
        "60 steps in",
        "loss 5.",
        "peak bytes",
        "predicted",
        "ideal",
        "tokens/s",
        "run     run",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let log = fs::read_to_string(folder.path().join("run/log.txt")).unwrap();
    assert_eq!(
        log.lines().filter(|line| line.starts_with("step ")).count(),
        60
    );
}

#[test]
fn events_are_the_same_objects_with_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--steps",
        "4",
        "--eval-every",
        "2",
        "--keep",
        "0",
        "--json",
        "--out",
        "run",
    ];
    let printed = objects(&small(folder.path(), "train", &arguments));
    let kinds = |objects: &[Value]| -> Vec<String> {
        objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        kinds(&printed),
        ["step", "step", "eval", "step", "step", "eval"]
    );
    let mut events = parse(&fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap());
    assert_eq!(
        kinds(&events),
        [
            "start", "step", "step", "eval", "step", "step", "eval", "end"
        ]
    );
    assert_keys(
        &events[0],
        &[
            "kind",
            "cut",
            "parameters",
            "trained_parameters",
            "steps",
            "tokens",
            "unit",
            "time",
        ],
    );
    assert_keys(
        &events[3],
        &[
            "kind",
            "step",
            "loss",
            "perplexity",
            "accuracy",
            "tokens",
            "time",
        ],
    );
    let end = events.last().unwrap();
    assert_eq!(end["peak_bytes"], end["predicted_peak_bytes"]);
    for event in &mut events {
        let time = event.as_object_mut().unwrap().remove("time");
        assert!(time.unwrap().as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(events[1..7], printed);
}

#[test]
fn the_saved_configuration_gives_the_same_run() {
    let folder = tempfile::tempdir().unwrap();
    let first = [
        "--steps",
        "3",
        "--json",
        "--out",
        "a",
        "--dropout",
        "0.1",
        "--seed",
        "7",
        "--schedule",
        "1f1b",
    ];
    let first = losses(&objects(&small(folder.path(), "train", &first)));
    let again = ["train", "--config", "a/config.toml", "--json", "--out", "b"];
    assert_eq!(losses(&objects(&gpipe(folder.path(), &again))), first);
    // Other stages, the same numbers; another seed, others.
    let cut = [
        "train",
        "--config",
        "a/config.toml",
        "--json",
        "--out",
        "c",
        "--stages",
        "2",
    ];
    assert_eq!(losses(&objects(&gpipe(folder.path(), &cut))), first);
    let seed = [
        "train",
        "--config",
        "a/config.toml",
        "--json",
        "--out",
        "d",
        "--seed",
        "8",
    ];
    assert_ne!(losses(&objects(&gpipe(folder.path(), &seed))), first);
    let configuration =
        |run: &str| fs::read_to_string(folder.path().join(run).join("config.toml")).unwrap();
    assert_eq!(configuration("a"), configuration("b"));
}

#[test]
fn every_number_of_stages_and_an_uneven_batch_train() {
    let folder = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for stages in ["1", "5", "8"] {
        let arguments = [
            "--steps",
            "2",
            "--json",
            "--stages",
            stages,
            "--micro-batch-size",
            "3",
            "--out",
            stages,
        ];
        runs.push(losses(&objects(&small(folder.path(), "train", &arguments))));
    }
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
}

#[test]
fn runs_get_names_of_their_own_and_are_overwritten_only_if_told() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let output = small(folder.path(), "train", &["--steps", "1", "-q"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    assert_eq!(folder.path().join("runs").read_dir().unwrap().count(), 2);

    let arguments = ["--steps", "1", "-q", "--out", "run"];
    assert_eq!(
        small(folder.path(), "train", &arguments).status.code(),
        Some(0)
    );
    assert_eq!(
        small(folder.path(), "train", &arguments).status.code(),
        Some(2)
    );
    let overwrite = [&arguments[..], &["--overwrite"]].concat();
    assert_eq!(
        small(folder.path(), "train", &overwrite).status.code(),
        Some(0)
    );
    let mut names: Vec<_> = folder
        .path()
        .join("run")
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    let curves = names.remove(4);
    assert!(curves.to_string_lossy().starts_with("events.out.tfevents."));
    assert_eq!(
        names,
        [
            ".lock",
            "checkpoints",
            "config.toml",
            "events.jsonl",
            "log.txt",
            "run.json",
            "timeline.json",
            "trace.json"
        ]
    );
}

#[test]
fn the_timeline_of_the_last_steps_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--steps",
        "3",
        "-q",
        "--out",
        "run",
        "--trace-steps",
        "2",
        "--stages",
        "2",
    ];
    assert_eq!(
        small(
            folder.path(),
            "train",
            &[&arguments[..], &["--micro-batches", "4", "--remat", "keep"]].concat()
        )
        .status
        .code(),
        Some(0)
    );
    let trace: Value =
        serde_json::from_slice(&fs::read(folder.path().join("run/trace.json")).unwrap()).unwrap();
    let slices = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "X");
    // Two steps, two stages, four micro-batches, forward and backward.
    assert_eq!(slices.count(), 2 * 2 * 4 * 2);
}

#[test]
fn text_of_ones_own_in_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("notes")).unwrap();
    fs::write(
        folder.path().join("notes/a.txt"),
        "the cat sat on the mat. ".repeat(20),
    )
    .unwrap();
    fs::write(
        folder.path().join("notes/b.txt"),
        "the dog sat on the log. ".repeat(20),
    )
    .unwrap();
    let arguments = [
        "--data",
        "notes",
        "--no-shuffle",
        "--steps",
        "40",
        "--json",
        "--out",
        "run",
        "--lr",
        "3e-3",
    ];
    let losses = losses(&objects(&small(folder.path(), "train", &arguments)));
    assert!(losses[39] < 2.5, "{losses:?}");
}

#[test]
fn colour_only_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let coloured = |arguments: &[&str]| stderr(&gpipe(folder.path(), arguments)).contains('\u{1b}');
    assert!(!coloured(&["train", "--stages", "0"]));
    assert!(coloured(&["train", "--stages", "0", "--color", "always"]));
}

#[test]
fn help_and_version_are_on_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let help = gpipe(folder.path(), &["train", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    for words in ["--micro-batch-size", "Pipeline:", "Optimizer:", "Examples:"] {
        assert!(stdout(&help).contains(words));
    }
    assert!(stdout(&gpipe(folder.path(), &["--version"])).starts_with("gpipe 0."));
    assert_eq!(gpipe(folder.path(), &[]).status.code(), Some(2));
}
