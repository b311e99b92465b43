//! Networks for images: trained, evaluated, resumed and verified by the same bits at any cut, and refused
//! where they do not fit the data.

use std::path::Path;

use serde_json::Value;

use super::{gpipe, objects, stderr, stdout};

/// A network and batches that train in milliseconds.
const SMALL: &[&str] = &[
    "--model",
    "convnet:4,8,8",
    "--batch-size",
    "16",
    "--threads",
    "2",
];

fn small(folder: &Path, command: &str, arguments: &[&str]) -> std::process::Output {
    gpipe(folder, &[&[command], SMALL, arguments].concat())
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

#[test]
fn a_convnet_learns_digits_and_is_evaluated_and_resumed_by_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let arguments = [
        "--set",
        "model.network=convnet:16,32,32",
        "--dropout",
        "0.1",
        "--steps",
        "120",
        "--eval-every",
        "60",
        "--save-every",
        "40",
        "--json",
    ];
    let train = |more: &[&str]| objects(&small(here, "train", &[&arguments[..], more].concat()));
    let whole = train(&["--out", "whole"]);
    let evaluations = of_kind(&whole, "eval");
    assert_eq!(evaluations.len(), 2);
    let accuracy = evaluations[1]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.5, "{accuracy}");
    // What a run saved is evaluated to the same bits at another cut.
    let evaluated = objects(&gpipe(here, &["eval", "whole", "--json", "--stages", "7"]));
    for key in ["loss", "accuracy", "tokens"] {
        assert_eq!(evaluated[0][key], evaluations[1][key], "{key}");
    }
    // A run that goes on in other stages and another schedule ends in the same bits.
    let step = "whole/checkpoints/step-00000080";
    let resumed = gpipe(
        here,
        &[
            "train",
            "--resume",
            step,
            "--stages",
            "6",
            "--schedule",
            "1f1b",
            "--json",
            "--out",
            "on",
        ],
    );
    let resumed = objects(&resumed);
    let losses = |objects: &[Value]| -> Vec<String> {
        let steps = of_kind(objects, "step").into_iter();
        steps.map(|step| step["loss"].to_string()).collect()
    };
    assert_eq!(losses(&resumed), losses(&whole)[80..]);
    let page = gpipe(here, &["report", "whole"]);
    assert_eq!(page.status.code(), Some(0), "{}", stderr(&page));
}

#[test]
fn a_convnet_has_the_bits_of_one_stage() {
    let folder = tempfile::tempdir().unwrap();
    for (stages, schedule, remat) in [
        ("2", "gpipe", "keep"),
        ("4", "1f1b", "stage"),
        ("8", "zb-h1", "every:2"),
        ("8", "interleaved:2", "except-last"),
        ("4", "zb-v", "stage"),
    ] {
        let arguments = ["--stages", stages, "--schedule", schedule, "--remat", remat];
        let output = small(folder.path(), "verify", &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("equal: "));
    }
    let noise = ["--data", "synthetic", "--image-size", "12", "--stages", "3"];
    let output = small(folder.path(), "verify", &noise);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn channels_and_classes_follow_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |arguments: &[&str]| {
        stdout(&small(
            folder.path(),
            "plan",
            &[&["-v"], arguments].concat(),
        ))
    };
    let digits = shown(&[]);
    for line in ["channels = 1", "classes = 10", "image_size = 8"] {
        assert!(digits.contains(line), "{line} in {digits}");
    }
    let noise = shown(&["--data", "synthetic"]);
    for line in ["channels = 3", "classes = 1000", "image_size = 32"] {
        assert!(noise.contains(line), "{line} in {noise}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, mend) in [
        (
            &["--model", "convnet", "--data", "cicero"][..],
            "use a folder",
        ),
        (
            &["--model", "convnet", "--image-size", "9"],
            "use --image-size 8",
        ),
        (
            &["--model", "convnet", "--tokenizer", "bytes"],
            "leave --tokenizer out",
        ),
        (
            &["--model", "convnet", "--seq-len", "8"],
            "leave --seq-len out",
        ),
        (
            &["--model", "convnet", "--set", "model.hidden=8"],
            "has no model.hidden",
        ),
        (&["--model", "convnet:0"], "did you mean `convnet`"),
        (
            &["--model", "gpt-nano", "--data", "synthetic"],
            "--data cicero",
        ),
        (
            &["--model", "gpt-nano", "--image-size", "8"],
            "leave --image-size out",
        ),
        (
            &["--model", "mlp", "--data", "synthetic"],
            "use --data digits",
        ),
    ] {
        let output = gpipe(folder.path(), &[&["train"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(mend) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "nothing is left behind"
    );
}
