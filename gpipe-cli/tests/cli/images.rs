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

pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
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
    let page = std::fs::read_to_string(here.join("whole/report.html")).unwrap();
    assert!(page.contains(" images/s") && !page.contains("tokens/s"));
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
        (
            &["--model", "convnet:0"],
            "`convnet:0` is no network for images: use convnet,",
        ),
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

#[test]
fn a_resnet_has_the_bits_of_one_stage_and_its_weights_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let small = [
        "--model",
        "resnet18",
        "--data",
        "digits",
        "--batch-size",
        "4",
        "--micro-batches",
        "2",
        "--threads",
        "2",
    ];
    let of = |command: &str, more: &[&str]| gpipe(here, &[&[command], &small[..], more].concat());
    let verify = [
        "--steps",
        "1",
        "--stages",
        "7",
        "--schedule",
        "1f1b",
        "--remat",
        "stage",
    ];
    let output = of("verify", &verify);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("both have 2"),
        "{}",
        stderr(&output)
    );
    let trained = of(
        "train",
        &["--steps", "2", "--stages", "2", "--json", "--out", "run"],
    );
    let trained = objects(&trained);
    let step = "run/checkpoints/step-00000002";
    // Names and shapes are those of torchvision.
    let file = here.join(step).join("model/model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let header = String::from_utf8_lossy(&bytes[8..20_000]).into_owned();
    for part in [
        r#""conv1.weight":{"dtype":"F32","shape":[64,1,7,7]"#,
        r#""layer2.0.downsample.1.running_var":{"dtype":"F32","shape":[128]"#,
        r#""fc.weight":{"dtype":"F32","shape":[10,512]"#,
    ] {
        assert!(header.contains(part), "{part}");
    }
    let summary = of_kind(&trained, "step");
    assert_eq!(summary.len(), 2);
    // A file of weights begins a run as the folder of its model does.
    let first = |arguments: &[&str]| -> Value {
        let output = gpipe(here, &[&["train"], arguments].concat());
        of_kind(&objects(&output), "step")[0]["loss"].clone()
    };
    let rest = [
        "--steps",
        "1",
        "--keep",
        "0",
        "--json",
        "--data",
        "digits",
        "--batch-size",
        "4",
        "--micro-batches",
        "2",
    ];
    let weights = file.to_str().unwrap();
    let of_file = first(
        &[
            &["--model", "resnet18", "--weights", weights, "--out", "a"],
            &rest[..],
        ]
        .concat(),
    );
    let of_folder = first(&[&["--model", "run", "--out", "b"], &rest[..]].concat());
    assert_eq!(of_file, of_folder);
    let fresh = first(&[&["--model", "resnet18", "--out", "c"], &rest[..]].concat());
    assert_ne!(of_file, fresh);
    // Of other classes, all but the classifier are taken.
    let classes = ["--set", "model.classes=11", "--weights", weights];
    let other = of(
        "train",
        &[&classes[..], &["--steps", "1", "--out", "eleven"]].concat(),
    );
    let said = stderr(&other);
    assert_eq!(other.status.code(), Some(0), "{said}");
    assert!(
        said.contains(
            "its last layer has another number of classes, and fc.weight and fc.bias begin anew"
        ),
        "{said}"
    );
    // Those of another network, and another number of micro-batches.
    let foreign = of(
        "train",
        &["--set", "model.network=resnet34", "--weights", weights],
    );
    assert_eq!(foreign.status.code(), Some(2));
    assert!(
        stderr(&foreign).contains("no weights for `layer"),
        "{}",
        stderr(&foreign)
    );
    let other = [
        "train",
        "--resume",
        step,
        "--steps",
        "3",
        "--micro-batches",
        "1",
        "--out",
        "d",
    ];
    let other = gpipe(here, &other);
    assert!(
        stderr(&other).contains("the model is another"),
        "{}",
        stderr(&other)
    );
}

/// From its second group on a ResNet sees one pixel of a picture of 8 by 8.
#[test]
fn a_micro_batch_of_one_value_a_channel_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--model",
        "resnet18",
        "--data",
        "digits",
        "--batch-size",
        "2",
    ];
    for (micro_batches, code) in [("2", 2), ("1", 0)] {
        let more = [
            "--micro-batches",
            micro_batches,
            "--steps",
            "1",
            "--keep",
            "0",
        ];
        let more = [&more[..], &["--eval-every", "0", "--out", micro_batches]].concat();
        let output = gpipe(folder.path(), &[&["train"], &arguments[..], &more].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        if code == 2 {
            let named = said.contains("layer2.0.downsample.1") && said.contains("two values");
            assert!(named && said.lines().count() == 1, "{said}");
        }
    }
}

#[test]
fn the_parameters_of_a_resnet_are_those_it_is_known_by() {
    let folder = tempfile::tempdir().unwrap();
    for (model, parameters) in [("resnet50", 25_557_032), ("resnet101", 44_549_160)] {
        let plan = gpipe(folder.path(), &["plan", "--model", model, "--json"]);
        assert_eq!(objects(&plan)[0]["parameters"], parameters, "{model}");
    }
}
